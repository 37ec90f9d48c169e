// A small folder to pack, and what comes of it, for tests of packing. For tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "headrace/base/crc32c.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/pack.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

using Tree = std::map<std::string, std::string>;  // path -> content or what tells it

inline const std::string kSource = "/source";
inline const std::string kTarget = "/packed/set";

inline std::string Pattern(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 131 + seed * 29) >> 3);
  return bytes;
}

inline void WriteFile(FileSystem* fs, const std::string& path, const std::string& content) {
  std::string folder(DirectoryName(path));
  ASSERT_TRUE(fs->MakeDirectories(folder).ok());
  ASSERT_TRUE(fs->WriteAtomically(path, AsBytes(content)).ok());
  for (; folder != "/"; folder = std::string(DirectoryName(folder)))
    ASSERT_TRUE(fs->SyncDirectory(folder).ok());
  ASSERT_TRUE(fs->SyncDirectory("/").ok());
}

// Two classes, sizes around the borders of a tar block, a sample with two files.
inline void MakeSource(FileSystem* fs, const std::string& root = kSource) {
  WriteFile(fs, root + "/cat/a.jpg", Pattern(700, 1));
  WriteFile(fs, root + "/cat/a.json", "{}");
  WriteFile(fs, root + "/cat/b.jpg", Pattern(512, 2));
  WriteFile(fs, root + "/cat/deep/c.jpg", Pattern(511, 3));
  WriteFile(fs, root + "/dog/a.jpg", "");
  WriteFile(fs, root + "/dog/b.jpg", Pattern(513, 4));
}

inline PackOptions SmallShards() {
  PackOptions options;
  options.shard_samples = 2;
  options.threads = 1;
  return options;
}

inline void AddTree(FileSystem* fs, const std::string& path, Tree* tree) {
  auto entries = fs->List(path);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  for (const DirectoryEntry& entry : *entries) {
    std::string child = JoinPath(path, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      (*tree)[child + "/"] = "";
      AddTree(fs, child, tree);
    } else {
      std::string content = *fs->ReadWhole(child, 1 << 26);
      (*tree)[child] = fmt::format("{} bytes, {:08x}", content.size(), Crc32c(AsBytes(content)));
    }
  }
}

// Everything below `path`, files by size and checksum; empty when it is not there.
inline Tree Snapshot(FileSystem* fs, const std::string& path) {
  Tree tree;
  if (fs->Exists(path)) AddTree(fs, path, &tree);
  return tree;
}

// Reads every field of a data set through its indexes and checks every checksum there is.
inline Tree ReadSamples(FileSystem* fs, const std::string& path) {
  Tree samples;
  auto manifest = Manifest::Load(fs, JoinPath(path, kManifestName));
  EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
  if (!manifest.ok()) return samples;
  for (const ManifestShard& shard : manifest->shards) {
    auto tar = fs->ReadWhole(JoinPath(path, shard.name), 1 << 26);
    auto bytes = fs->ReadWhole(JoinPath(path, shard.index), 1 << 26);
    EXPECT_TRUE(tar.ok() && bytes.ok()) << shard.name;
    if (!tar.ok() || !bytes.ok()) continue;
    EXPECT_EQ(Crc32c(AsBytes(*tar)), *shard.crc32c) << shard.name;
    auto index = IndexReader::FromBytes(*bytes, shard.index);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    if (!index.ok()) continue;
    EXPECT_EQ((*index)->header_crc32c(), shard.index_header_crc32c);
    EXPECT_EQ((*index)->num_samples(), shard.samples);
    EXPECT_TRUE((*index)->fully_checksummed());
    IndexSample sample;
    for (uint64_t i = 0; i < (*index)->num_samples(); ++i) {
      EXPECT_TRUE((*index)->Get(i, &sample).ok());
      for (const IndexField& field : sample.fields) {
        std::string data = tar->substr(field.offset, field.length);
        EXPECT_EQ(Crc32c(AsBytes(data)), *field.crc32c);
        samples[std::string(sample.key) + "." + (*index)->field_names()[field.name]] = data;
      }
    }
  }
  return samples;
}

inline Result<PackReport> PackInto(FileSystem* fs, const PackOptions& options,
                                   const std::string& source = kSource) {
  return Pack(fs, {source}, kTarget, options, Context());
}

// What a pack of MakeSource's files gives.
inline Tree ExpectedSamples() {
  return {{"cat/a.jpg", Pattern(700, 1)}, {"cat/a.json", "{}"}, {"cat/a.cls", "0"},
          {"cat/b.jpg", Pattern(512, 2)}, {"cat/b.cls", "0"},   {"cat/deep/c.jpg", Pattern(511, 3)},
          {"cat/deep/c.cls", "0"},        {"dog/a.jpg", ""},    {"dog/a.cls", "1"},
          {"dog/b.jpg", Pattern(513, 4)}, {"dog/b.cls", "1"}};
}

}  // namespace headrace::dataset
