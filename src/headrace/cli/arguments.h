// The options and operands of one subcommand, declared without naming the parser behind them.
// One thread. The values pointed to must outlive the parse; they keep what they hold (the default)
// when the option is not given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace::cli {

// `names` is "-q,--quiet" for an option, "dataset" for an operand. Operands are required unless
// they say otherwise. Help texts end without a full stop.
class Arguments {
 public:
  virtual ~Arguments() = default;

  virtual void Flag(const std::string& names, bool* value, const std::string& help) = 0;
  virtual void Text(const std::string& names, std::string* value, const std::string& help) = 0;
  // An operand that may be left out.
  virtual void OptionalText(const std::string& name, std::string* value,
                            const std::string& help) = 0;
  // At least `at_least` operands.
  virtual void Texts(const std::string& name, std::vector<std::string>* value, int at_least,
                     const std::string& help) = 0;
  // A whole number: "12", "10k", "2M".
  virtual void Count(const std::string& names, uint64_t* value, const std::string& help) = 0;
  virtual void Count(const std::string& names, std::optional<uint64_t>* value,
                     const std::string& help) = 0;
  // A number of bytes: "64MiB", "1.5GB", "4096".
  virtual void Size(const std::string& names, uint64_t* value, const std::string& help) = 0;
  virtual void Choice(const std::string& names, std::string* value,
                      const std::vector<std::string>& choices, const std::string& help) = 0;

  // Text below the options: a paragraph, or an example with what it does.
  virtual void Note(const std::string& paragraph) = 0;
  virtual void Example(const std::string& command, const std::string& what) = 0;
};

}  // namespace headrace::cli
