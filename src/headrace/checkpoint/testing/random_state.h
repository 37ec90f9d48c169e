// States with known content, cut among ranks at random, and what saves and reads them. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/checkpoint/restore.h"

namespace headrace::checkpoint {

struct TestTensor {
  std::string path;
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
  std::vector<std::byte> bytes;  // row-major

  uint64_t element_bytes() const { return BitsOf(dtype) / 8; }
};

// A state, and for each tensor the boxes it is cut into and the rank of each.
struct TestState {
  struct Cut {
    Box box;
    uint32_t rank = 0;
  };
  std::vector<TestTensor> tensors;
  std::vector<std::vector<Cut>> cuts;
};

inline std::vector<std::byte> RandomBytes(uint64_t count, std::mt19937_64* random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = std::byte((*random)() & 0xff);
  return bytes;
}

// The bytes of a box of a tensor.
inline std::vector<std::byte> CutOut(const TestTensor& tensor, BoxView box) {
  const uint64_t element = tensor.element_bytes();
  std::vector<std::byte> out(*Volume(box.length) * element);
  for (Runs runs(Box::Whole(tensor.shape), box); !runs.done(); runs.Next())
    std::copy_n(tensor.bytes.begin() + static_cast<long>(runs.now().stored * element),
                runs.now().elements * element,
                out.begin() + static_cast<long>(runs.now().wanted * element));
  return out;
}

// Cuts [0, n) at up to `cuts` random places, which may coincide.
inline std::vector<Interval> RandomIntervals(uint64_t n, size_t cuts, std::mt19937_64* random) {
  std::vector<uint64_t> at{0, n};
  for (size_t i = 0; i < cuts; ++i) at.push_back((*random)() % (n + 1));
  std::sort(at.begin(), at.end());
  std::vector<Interval> intervals;
  for (size_t i = 0; i + 1 < at.size(); ++i) intervals.push_back({at[i], at[i + 1] - at[i]});
  return intervals;
}

// A grid of boxes that covers a tensor; some may be empty.
inline std::vector<Box> RandomGrid(Extents shape, std::mt19937_64* random) {
  std::vector<Box> boxes{Box({}, {})};
  for (uint64_t n : shape) {
    std::vector<Box> next;
    for (const Interval& part : RandomIntervals(n, (*random)() % 3, random))
      for (Box box : boxes) {
        box.offset.push_back(part.offset);
        box.length.push_back(part.length);
        next.push_back(std::move(box));
      }
    boxes = std::move(next);
  }
  return boxes;
}

inline TestTensor RandomTensor(const std::string& path, uint64_t largest, std::mt19937_64* random) {
  TestTensor tensor;
  tensor.path = path;
  constexpr DType kTypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kI64, DType::kBool};
  tensor.dtype = kTypes[(*random)() % 5];
  size_t dimensions = (*random)() % 4;
  uint64_t elements = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    uint64_t n = (*random)() % 16 == 0 ? 0 : 1 + (*random)() % largest;
    if (elements * n > largest * largest) n = 1;
    tensor.shape.push_back(n);
    elements *= n;
  }
  tensor.bytes = RandomBytes(elements * tensor.element_bytes(), random);
  return tensor;
}

inline TestState RandomState(size_t tensors, uint32_t ranks, uint64_t largest, uint64_t seed) {
  std::mt19937_64 random(seed);
  TestState state;
  for (size_t i = 0; i < tensors; ++i) {
    const char* group = i % 2 == 0 ? "/model/t" : "/optimizer/t";
    state.tensors.push_back(RandomTensor(group + std::to_string(i), largest, &random));
    state.cuts.emplace_back();
    for (Box& box : RandomGrid(state.tensors.back().shape, &random))
      state.cuts.back().push_back({std::move(box), static_cast<uint32_t>(random() % ranks)});
  }
  return state;
}

// What one rank saves of a state, with the memory it points to.
struct TestRankSave {
  RankSave save;
  std::vector<std::vector<std::byte>> memory;
};

inline TestRankSave SaveOf(const TestState& state, uint32_t rank, uint32_t world,
                           const SaveId& id) {
  TestRankSave made;
  made.save.info.id = id;
  made.save.info.world_size = world;
  made.save.rank = rank;
  made.save.tree = "{}";
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const TestTensor& tensor = state.tensors[t];
    uint32_t number = made.save.tensors.Add(tensor.path, tensor.dtype, tensor.shape);
    for (const TestState::Cut& cut : state.cuts[t]) {
      if (cut.rank != rank) continue;
      made.memory.push_back(CutOut(tensor, cut.box));
      made.save.boxes.push_back({number, cut.box, made.memory.back(), false});
    }
  }
  return made;
}

// The same save as SaveOf makes, with its bytes in borrowed memory. `loan` must have room.
inline RankSave SaveInLoan(const TestState& state, uint32_t rank, uint32_t world, const SaveId& id,
                           MutableBytes loan) {
  TestRankSave made = SaveOf(state, rank, world, id);
  size_t at = 0;
  for (SavedBox& box : made.save.boxes) {
    std::copy(box.data.begin(), box.data.end(), loan.begin() + static_cast<long>(at));
    box.data = Bytes(loan.data() + at, box.data.size());
    at += box.data.size();
  }
  return std::move(made.save);
}
inline uint64_t BytesOf(const TestState& state) {
  uint64_t bytes = 0;
  for (const TestTensor& tensor : state.tensors) bytes += tensor.bytes.size();
  return std::max<uint64_t>(bytes, 1);
}

// Reads a state, cut anew at random, and counts the tensors that differ.
inline Result<size_t> CountWrong(const TestState& state, std::span<DataFiles* const> places,
                                 const Manifest& manifest, uint64_t seed, RestoreReport* report,
                                 const RestoreOptions& options = {}) {
  std::mt19937_64 random(seed);
  std::vector<WantedBox> wanted;
  std::vector<std::vector<std::byte>> memory, expected;
  for (const TestTensor& tensor : state.tensors) {
    auto number = manifest.FindTensor(tensor.path);
    if (!number) return Error(Code::kNotFound, "{} is not there", tensor.path);
    for (Box& box : RandomGrid(tensor.shape, &random)) {
      expected.push_back(CutOut(tensor, box));
      memory.emplace_back(expected.back().size(), std::byte{0xee});
      wanted.push_back({*number, std::move(box), memory.back()});
    }
  }
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i].out = memory[i];
  HR_RETURN_IF_ERROR(Restore(places, manifest, wanted, options, {}, report));
  size_t wrong = 0;
  for (size_t i = 0; i < memory.size(); ++i) wrong += memory[i] != expected[i] ? 1 : 0;
  return wrong;
}

}  // namespace headrace::checkpoint
