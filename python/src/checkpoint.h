// What the bindings of checkpoints share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/checkpoint/restore.h"
#include "headrace/checkpoint/save_plan.h"
#include "headrace/checkpoint/verify.h"

namespace headrace::python {

using Addresses =
    nanobind::ndarray<const uint64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ByteArray =
    nanobind::ndarray<uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
// (tensor, offset, length) of a wanted box, with its address and size.
using WantedTuple =
    std::tuple<uint32_t, std::vector<uint64_t>, std::vector<uint64_t>, uint64_t, uint64_t>;

// A checkpoint that is read.
struct Reading {
  checkpoint::CatalogEntry entry;
  checkpoint::Manifest manifest;
};

// Runs without the GIL.
template <typename Call>
auto Released(Call call) {
  nanobind::gil_scoped_release released;
  return call();
}

// Raises in a process that was forked from the one where ForkGeneration() was `generation`: the
// threads, the memory and the locks of a saver are that one's.
void CheckNotForked(uint64_t generation);
Context Within(std::optional<double> seconds);
checkpoint::Level LevelFrom(const std::string& name);
nanobind::dict EntryDict(const checkpoint::CatalogEntry& entry);
std::vector<checkpoint::WantedBox> WantedBoxes(const std::vector<WantedTuple>& tuples);
// Part of a loan as an array, which keeps `owner` alive.
ByteArray LoanView(nanobind::handle owner, MutableBytes all, uint64_t offset, uint64_t bytes);
// Copies a state into a loan, and says what it is. Without the epoch and attempt.
checkpoint::RankSave FilledSave(const checkpoint::SavePlan& plan, MutableBytes loan,
                                const Addresses& addresses, const nanobind::dict& info,
                                int threads);

nanobind::dict VerifyDict(const checkpoint::VerifyReport& report);

// What Python is told of a save: its id, bytes, and the seconds of each phase.
nanobind::dict SaveDict(const checkpoint::SaveId& id, const checkpoint::WriteReport& report,
                        uint64_t queued_ns, uint64_t publish_ns);

}  // namespace headrace::python
