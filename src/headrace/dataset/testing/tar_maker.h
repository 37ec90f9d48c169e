// Makes tars and datasets for tests. One owner at a time; for tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/dataset/tar.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

using Members = std::vector<std::pair<std::string, std::string>>;  // path, data

// The bytes of a tar, as AppendTarHeader writes it.
inline std::string MakeTar(const Members& members, bool end_blocks = true) {
  std::string tar;
  for (const auto& [path, data] : members) {
    AppendTarHeader(path, data.size(), &tar);
    tar.append(data).append(TarPaddedBytes(data.size()) - data.size(), '\0');
  }
  if (end_blocks) tar.append(kTarEndBytes, '\0');
  return tar;
}

// Writes a file, making its folders. A failure fails the test.
inline void Put(FileSystem* fs, const std::string& path, std::string_view content) {
  Status made = fs->MakeDirectories(std::string(DirectoryName(path)));
  ASSERT_TRUE(made.ok()) << made.ToString();
  Status written = fs->WriteAtomically(path, AsBytes(content));
  ASSERT_TRUE(written.ok()) << written.ToString();
}

// `count` samples of a .jpg and a .cls each, keys "PREFIX00000", sizes that differ.
inline Members MakeSamples(const std::string& prefix, size_t count, size_t bytes = 300) {
  Members members;
  for (size_t i = 0; i < count; ++i) {
    std::string key = fmt::format("{}{:05}", prefix, i);
    std::string data(bytes + i % 50, '\0');
    for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<char>(k * 7 + i * 13);
    members.emplace_back(key + ".jpg", std::move(data));
    members.emplace_back(key + ".cls", std::to_string(i % 10));
  }
  return members;
}

}  // namespace headrace::dataset
