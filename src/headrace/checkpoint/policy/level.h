// Where a checkpoint is safe, from the least to the most. The order is that of the numbers, which
// are stored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::checkpoint {

enum class Level : uint8_t {
  kMemory = 1,  // this node's memory: survives the trainer's process
  kLocal = 2,   // this node's disk, synced: survives the node's restart
  kPeer = 3,    // another node: survives the loss of this one
  kRemote = 4,  // the store at the destination
};
inline constexpr std::array<std::string_view, 4> kLevelNames = {"memory", "local", "peer",
                                                                "remote"};

constexpr std::string_view LevelName(Level level) {
  return kLevelNames[static_cast<size_t>(level) - 1];
}
constexpr std::optional<Level> LevelNamed(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i)
    if (kLevelNames[i] == name) return static_cast<Level>(i + 1);
  return std::nullopt;
}

}  // namespace headrace::checkpoint
