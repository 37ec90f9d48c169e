// The conformance suite of Ref: what every driver must do. Registered as that of object stores is:
//
//   const bool kRegistered = RegisterRefSuite("file", Open);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headrace/object/ref.h"

namespace headrace::object {

struct RefUnderTest {
  // Another Ref of the same place, which was never set.
  std::function<std::unique_ptr<Ref>()> open;
  std::shared_ptr<void> owner = {};  // whatever must live as long as the test
  // Answers of the server may get lost: a swap that is refused may have been done then.
  bool answers_may_be_lost = false;
};

// Registers the tests RefSuite/<name>.<test> with GoogleTest. Each gets a fresh place. Returns
// true.
bool RegisterRefSuite(const std::string& name, const std::function<RefUnderTest()>& make);

}  // namespace headrace::object
