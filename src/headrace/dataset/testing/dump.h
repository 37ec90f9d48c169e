// Reads whole datasets into simple values for tests. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/dataset/dataset.h"

namespace headrace::dataset {

using FieldTexts = std::map<std::string, std::string>;  // name, bytes

inline FieldTexts ToTexts(const Dataset& dataset, const SampleView& view) {
  FieldTexts texts;
  for (const FieldView& field : view.fields)
    texts[dataset.fields()[field.field]] = std::string(AsText(field.data));
  return texts;
}

// All samples by their keys. A failure fails the test.
inline std::map<std::string, FieldTexts> ReadAll(std::shared_ptr<const Dataset> dataset,
                                                 const ReadOptions& options = {}) {
  std::map<std::string, FieldTexts> all;
  auto reader = SampleReader::Create(dataset, options);
  for (uint64_t i = 0; i < dataset->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    EXPECT_TRUE(view.ok()) << view.status().ToString();
    if (view.ok()) all[std::string(view->key)] = ToTexts(*dataset, *view);
  }
  return all;
}

// The same, each field by ReadField.
inline std::map<std::string, FieldTexts> ReadAllByField(std::shared_ptr<const Dataset> dataset,
                                                        const ReadOptions& options = {}) {
  std::map<std::string, FieldTexts> all;
  auto reader = SampleReader::Create(dataset, options);
  for (uint64_t i = 0; i < dataset->num_samples(); ++i) {
    auto view = reader->Locate(i);
    EXPECT_TRUE(view.ok()) << view.status().ToString();
    if (!view.ok()) continue;
    FieldTexts& texts = all[std::string(view->key)];
    const std::vector<FieldEntry> entries(view->entries.begin(), view->entries.end());
    for (const FieldEntry& entry : entries) {
      std::string text(entry.length, '\0');
      Status read = reader->ReadField(
          entry, {reinterpret_cast<std::byte*>(text.data()), text.size()}, Context());
      EXPECT_TRUE(read.ok()) << read.ToString();
      texts[dataset->fields()[entry.field]] = std::move(text);
    }
  }
  return all;
}

}  // namespace headrace::dataset
