#include "headrace/cli/ckpt_tiers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/checkpoint/drain.h"
#include "headrace/checkpoint/helper_client.h"
#include "headrace/checkpoint/tiers.h"
#include "headrace/cli/progress_line.h"
#include "headrace/object/pause.h"

namespace headrace::cli {
namespace {

using checkpoint::CatalogEntry;
using checkpoint::Drain;
using checkpoint::DrainProgress;
using checkpoint::HelperClient;
using checkpoint::Level;
using checkpoint::Tiers;

constexpr std::chrono::milliseconds kLook{200};

// --- drain ---------------------------------------------------------------------------------------

// In the name of whoever writes: a run on another node goes on undisturbed. A spare tier is taken
// over when something is brought there.
Result<uint64_t> PresentEpoch(const Tiers& tiers, const Context& ctx) {
  uint64_t epoch = 0;
  for (const auto& tier : tiers) {
    auto head = tier->store.ReadHead(checkpoint::ContextFor(*tier, ctx));
    if (!head.ok() && tier->spare && ctx.Check().ok()) continue;
    HR_RETURN_IF_ERROR(head.status());
    epoch = std::max(epoch, head->epoch);
  }
  for (const auto& tier : tiers) {
    if (tier->spare) continue;
    HR_ASSIGN_OR_RETURN(checkpoint::StoreHead head, tier->store.ReadHead(ctx));
    if (head.epoch == epoch) continue;
    HR_ASSIGN_OR_RETURN(const uint64_t taken,
                        tier->store.TakeOver("headrace ckpt drain", ctx, epoch));
    if (taken != epoch)
      return Error(Code::kUnavailable, "another writer takes over {} just now: try again",
                   tier->store.name());
  }
  return epoch;
}

void PrintDrained(const DrainProgress& progress, const std::vector<std::string>& damaged,
                  Session* session) {
  if (session->json) {
    Json list = Json::MakeArray();
    for (const std::string& text : damaged) list.Append(text);
    session->out->Print(Json::MakeObject()
                            .Set("drained", progress.drained)
                            .Set("sent_bytes", progress.sent_bytes)
                            .Set("damaged", std::move(list)));
    return;
  }
  for (const std::string& text : damaged) session->out->Print("left out: {}\n", text);
  session->out->Print("{} checkpoints drained, {} sent\n", FormatCount(progress.drained),
                      FormatSize(progress.sent_bytes));
}

// Until nothing is left to copy there.
Status DrainTo(Drain* drain, uint64_t epoch, std::vector<std::string>* damaged, Session* session) {
  ProgressLine line("draining", *session, [drain] {
    const DrainProgress now = drain->progress();
    return ProgressFigures{0, 0, now.bytes, now.total_bytes};
  });
  std::string last;
  for (;;) {
    auto next = drain->Next(epoch, session->ctx);
    // One whose bytes are damaged here is left out from then on; what was removed meanwhile is
    // not looked for again.
    if (next.status().code() == Code::kDataLoss) {
      const std::string text = next.status().ToString();
      if (text == last) return next.status();  // not the near tier's fault: it does not go away
      last = text;
      if (std::find(damaged->begin(), damaged->end(), text) == damaged->end())
        damaged->push_back(text);
      continue;
    }
    HR_RETURN_IF_ERROR(next.status());
    if (!*next) return OkStatus();
  }
}

Result<ExitCode> DrainHere(const Tiers& tiers, uint64_t limit, Session* session) {
  HR_ASSIGN_OR_RETURN(const uint64_t epoch, PresentEpoch(tiers, session->ctx));
  checkpoint::DrainOptions options;
  options.rate = checkpoint::DrainRate::Limited(limit);
  std::vector<std::string> damaged;
  DrainProgress sum;
  for (size_t i = 1; i < tiers.size(); ++i) {
    Drain drain(tiers[0].get(), tiers[i].get(), options);
    const Status done = DrainTo(&drain, epoch, &damaged, session);
    const DrainProgress progress = drain.progress();
    sum.sent_bytes += progress.sent_bytes;
    if (i + 1 == tiers.size()) sum.drained = progress.drained;
    if (done.ok()) continue;
    if (!tiers[i]->spare || !session->ctx.Check().ok()) return done;
    Note(*session, fmt::format("left out {}: {}", tiers[i]->store.name(), done.ToString()));
  }
  PrintDrained(sum, damaged, session);
  return damaged.empty() ? ExitCode::kOk : ExitCode::kBadData;
}

uint64_t Figure(const Json& drain, std::string_view name) {
  const Json* value = drain.Find(name);
  return value == nullptr ? 0 : value->AsUint();
}

// A helper that runs drains by itself: waits until nothing is left.
Result<ExitCode> WatchHelper(HelperClient* client, Session* session) {
  std::atomic<uint64_t> bytes{0}, total{0};
  Json drain;
  {
    ProgressLine line("draining", *session, [&] { return ProgressFigures{0, 0, bytes, total}; });
    for (;;) {
      auto hello = client->Hello();
      if (hello.status().code() == Code::kUnavailable) break;  // it has ended, all being drained
      HR_RETURN_IF_ERROR(hello.status());
      if (const Json* now = hello->Find("drain")) drain = *now;
      bytes = Figure(drain, "bytes");
      total = Figure(drain, "total_bytes");
      const Json* idle = hello->Find("idle");
      if (idle == nullptr || idle->AsBool()) break;
      HR_RETURN_IF_ERROR(object::PauseFor(kLook, session->ctx));
    }
  }
  DrainProgress progress;
  progress.drained = Figure(drain, "drained");
  progress.sent_bytes = Figure(drain, "sent_bytes");
  if (!session->json) session->out->Print("by the helper that runs: ");
  PrintDrained(progress, {}, session);
  return ExitCode::kOk;
}

// --- explain -------------------------------------------------------------------------------------

struct Explained {
  CatalogEntry entry;
  std::vector<Level> levels;  // where it lies

  bool Survives(Level level) const {
    return std::any_of(levels.begin(), levels.end(), [level](Level l) { return l >= level; });
  }
};

void AddFound(const CatalogEntry& entry, Level level, std::vector<Explained>* all) {
  auto at = std::find_if(all->begin(), all->end(),
                         [&entry](const Explained& one) { return one.entry.id == entry.id; });
  if (at == all->end()) at = all->insert(all->end(), Explained{entry, {}});
  at->levels.push_back(level);
}

// The newest that survives the loss of all below a level.
const Explained* NewestAt(const std::vector<Explained>& all, Level level) {
  const Explained* newest = nullptr;
  for (const Explained& one : all)
    if (one.Survives(level)) newest = &one;
  return newest;
}

Json StepJson(const Explained* one) { return one == nullptr ? Json() : Json(one->entry.id.step); }

std::string LevelsText(const Explained& one) {
  std::string text;
  for (Level level : one.levels)
    text += (text.empty() ? "" : ", ") + std::string(checkpoint::LevelName(level));
  return text;
}

// The steps of those that do not survive the loss of all below a level.
Json LostBelow(const std::vector<Explained>& all, Level level) {
  Json steps = Json::MakeArray();
  for (const Explained& one : all)
    if (!one.Survives(level)) steps.Append(one.entry.id.step);
  return steps;
}

Json RowsOf(const std::vector<Explained>& all) {
  Json rows = Json::MakeArray();
  for (const Explained& one : all) {
    Json levels = Json::MakeArray();
    for (Level level : one.levels) levels.Append(checkpoint::LevelName(level));
    rows.Append(Json::MakeObject()
                    .Set("step", one.entry.id.step)
                    .Set("epoch", one.entry.id.epoch)
                    .Set("attempt", one.entry.id.attempt)
                    .Set("bytes", one.entry.data_bytes)
                    .Set("places", std::move(levels)));
  }
  return rows;
}

void PrintExplainedJson(const std::vector<Explained>& all, const std::string& peer,
                        Session* session) {
  Json newest = Json::MakeObject();
  newest.Set("process", StepJson(NewestAt(all, Level::kMemory)))
      .Set("memory", StepJson(NewestAt(all, Level::kLocal)))
      .Set("node", StepJson(NewestAt(all, Level::kPeer)));
  Json told = Json::MakeObject();
  told.Set("checkpoints", RowsOf(all)).Set("lost_with_node", LostBelow(all, Level::kPeer));
  if (!peer.empty()) {
    newest.Set("node_and_peer", StepJson(NewestAt(all, Level::kRemote)));
    told.Set("peer", peer).Set("lost_with_node_and_peer", LostBelow(all, Level::kRemote));
  }
  session->out->Print(told.Set("newest_after_loss_of", std::move(newest)));
}

void PrintLost(std::string_view what, const Json& lost, Session* session) {
  std::string steps;
  for (const Json& step : lost.items())
    steps += (steps.empty() ? "" : ", ") + std::to_string(step.AsUint());
  if (!steps.empty()) session->out->Print("{}: {}\n", what, steps);
}

// `peer` is the one before the destination, if any.
void PrintExplained(const std::vector<Explained>& all, const std::string& peer, Session* session) {
  if (session->json) return PrintExplainedJson(all, peer, session);
  for (const Explained& one : all)
    session->out->Print("step {:>10}  {:>10}  {}\n", one.entry.id.step,
                        FormatSize(one.entry.data_bytes), LevelsText(one));
  auto say = [&](std::string_view what, Level level) {
    const Explained* left = NewestAt(all, level);
    session->out->Print(
        "{} the newest is {}\n", what,
        left == nullptr ? "none: all is lost" : "step " + std::to_string(left->entry.id.step));
  };
  say("if the trainer dies,       ", Level::kMemory);
  say("if this node restarts,     ", Level::kLocal);
  say("if this node is lost,      ", Level::kPeer);
  if (!peer.empty()) say("if the peer is lost, too,  ", Level::kRemote);
  PrintLost("only on this node, lost with it", LostBelow(all, Level::kPeer), session);
  if (!peer.empty())
    PrintLost(fmt::format("only on this node and on {}, lost with both", peer),
              LostBelow(all, Level::kRemote), session);
}

}  // namespace

Result<ExitCode> DrainTiers(const std::string& home, uint64_t limit, Session* session) {
  auto settings = checkpoint::RecallTiers(session->fs, home);
  if (settings.status().code() == Code::kNotFound)
    return Error(Code::kNotFound,
                 "{} is not the first folder among the tiers of a store: nothing tells where to "
                 "drain it to",
                 EscapeText(home));
  HR_RETURN_IF_ERROR(settings.status());
  HR_ASSIGN_OR_RETURN(Tiers tiers, checkpoint::OpenTiers(*settings, session->storage));
  if (tiers.size() < 2) {
    PrintDrained({}, {}, session);
    return ExitCode::kOk;
  }
  auto lock = PosixFileSystem()->Lock(checkpoint::DrainLock(home));
  if (lock.ok()) return DrainHere(tiers, limit, session);
  if (lock.status().code() != Code::kFailedPrecondition) return lock.status();
  auto client = HelperClient::Connect(home, 0);
  if (client.status().code() == Code::kNotFound)
    return Error(Code::kFailedPrecondition, "another `headrace ckpt drain` works on {}",
                 EscapeText(home));
  HR_RETURN_IF_ERROR(client.status());
  return WatchHelper(client->get(), session);
}

Result<ExitCode> ExplainStore(const std::string& url, Session* session) {
  HR_ASSIGN_OR_RETURN(Tiers tiers, checkpoint::OpenTiersAt(session->fs, url, session->storage));
  std::vector<Explained> all;
  std::string peer;
  for (const auto& tier : tiers) {
    if (tier->spare) peer = tier->store.name();
    auto catalog = tier->store.Read(checkpoint::ContextFor(*tier, session->ctx));
    if (!catalog.ok()) {
      Note(*session, fmt::format("{} cannot be read, so what is there counts as lost: {}",
                                 tier->store.name(), catalog.status().ToString()));
      continue;
    }
    for (const CatalogEntry& entry : catalog->entries) AddFound(entry, tier->level, &all);
  }
  if (!IsUrl(url)) {
    auto memory = checkpoint::HelperMemory::Read(url, 0, session->ctx);
    if (!memory.ok()) {
      Note(*session, fmt::format("the helper cannot be asked: {}", memory.status().ToString()));
    } else if (*memory != nullptr) {
      for (const auto& one : (*memory)->content().checkpoints)
        AddFound(one.entry, Level::kMemory, &all);
    }
  }
  for (Explained& one : all) std::sort(one.levels.begin(), one.levels.end());
  std::sort(all.begin(), all.end(), [](const Explained& a, const Explained& b) {
    return checkpoint::Newer(b.entry.id, a.entry.id);
  });
  PrintExplained(all, peer, session);
  return ExitCode::kOk;
}

}  // namespace headrace::cli
