#include "headrace/checkpoint/checkpoint_helper.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/helper_protocol.h"
#include "headrace/checkpoint/memory_index.h"
#include "headrace/checkpoint/save_description.h"
#include "headrace/checkpoint/save_keeper.h"
#include "headrace/env/file.h"
#include "headrace/env/local_socket.h"
#include "headrace/env/process.h"
#include "headrace/env/shared_memory.h"

namespace headrace::checkpoint {
namespace {

using Clock = Context::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{200};  // how often it looks whether it is still needed
constexpr uint64_t kStripedFileBytes = uint64_t{256} << 20;

struct Answer {
  Json json = Json::MakeObject();
  int descriptor = -1;                   // sent along; stays its owner's
  std::shared_ptr<SharedMemory> memory;  // owns it
  std::shared_ptr<Arena> arena;
};

KeeperOptions KeeperOptionsOf(const HelperSettings& settings) {
  KeeperOptions options;
  options.rank = settings.rank;
  options.write.threads = settings.threads;
  options.write.reuse = settings.reuse;
  const size_t disks = settings.tiers.folders.size();
  if (disks > 1) {
    options.write.max_file_bytes = kStripedFileBytes;
    options.write_threads = static_cast<int>(disks);
  }
  options.keep_last = settings.keep_last;
  options.keep_every = settings.keep_every;
  options.publish_timeout = milliseconds(settings.publish_timeout_ms);
  options.drain.rate = DrainRate::Limited(settings.drain_limit);
  return options;
}

}  // namespace

class CheckpointHelper::Rep {
 public:
  Rep(uint32_t rank, const HelperOptions& options, std::unique_ptr<FileLock> drain_lock,
      std::unique_ptr<LocalListener> listener)
      : rank_(rank),
        options_(options),
        drain_lock_(std::move(drain_lock)),
        listener_(std::move(listener)) {}
  ~Rep();

  Status Run(const Context& ctx);

 private:
  // One connection. Its thread alone uses it.
  struct Session {
    std::unique_ptr<LocalSocket> socket;
    uint64_t epoch = 0;    // of the trainer that opened; 0: it only looks
    uint64_t counted = 0;  // in trainers_
    struct Borrowed {
      std::shared_ptr<Arena> arena;
      Arena::Loan loan;
    };
    std::map<uint64_t, Borrowed> loans;
    uint64_t next_loan = 1;
    std::vector<std::shared_ptr<const KeptSave>> reading;  // stay in memory meanwhile
    std::atomic<bool> ended{false};
    std::atomic<bool> said_bye{false};  // does not keep the helper any more
    std::unique_ptr<Thread> thread;     // last: joined first
  };
  using Call = Result<Answer> (Rep::*)(Session*, const Json&, int* descriptor);

  void Serve(Session* session);
  Result<Answer> Handle(Session* session, const LocalSocket::Message& message, int* descriptor);
  Result<Answer> Hello(Session* session, const Json& json, int* descriptor);
  Result<Answer> Open(Session* session, const Json& json, int* descriptor);
  Result<Answer> Borrow(Session* session, const Json& json, int* descriptor);
  Result<Answer> Return(Session* session, const Json& json, int* descriptor);
  Result<Answer> Submit(Session* session, const Json& json, int* descriptor);
  Result<Answer> Look(Session* session, const Json& json, int* descriptor);
  Result<Answer> Expects(Session* session, const Json& json, int* descriptor);
  Result<Answer> ArenaOf(Session* session, const Json& json, int* descriptor);
  Result<Answer> Memory(Session* session, const Json& json, int* descriptor);
  Result<Answer> Stall(Session* session, const Json& json, int* descriptor);
  Result<Answer> Deadline(Session* session, const Json& json, int* descriptor);
  Result<Answer> Bye(Session* session, const Json& json, int* descriptor);

  // Counts the trainer of a session as one of this epoch; 0: not any more.
  void CountTrainer(Session* session, uint64_t epoch);
  Status OpenKeeper(const HelperSettings& settings);
  std::shared_ptr<SaveKeeper> keeper();
  Result<std::shared_ptr<SaveKeeper>> NeedKeeper();
  bool Needed();
  void EndSessions(bool all);

  const uint32_t rank_;
  const HelperOptions options_;
  const std::unique_ptr<FileLock> drain_lock_;  // rank 0's
  const std::unique_ptr<LocalListener> listener_;
  std::atomic<bool> stopping_{false};
  std::list<std::unique_ptr<Session>> sessions_;  // of Run's thread

  Mutex open_mu_;  // one opens at a time
  Mutex mu_;
  std::shared_ptr<SaveKeeper> keeper_ HR_GUARDED_BY(mu_);
  HelperSettings settings_ HR_GUARDED_BY(mu_);
  std::map<uint64_t, int> trainers_ HR_GUARDED_BY(mu_);  // that are connected, by epoch
  bool said_bye_ HR_GUARDED_BY(mu_) = false;
  Clock::time_point last_seen_ HR_GUARDED_BY(mu_) = Clock::now();
};

CheckpointHelper::Rep::~Rep() { EndSessions(true); }

// --- life ----------------------------------------------------------------------------------------

bool CheckpointHelper::Rep::Needed() {
  const std::shared_ptr<SaveKeeper> kept = keeper();
  const bool used = std::any_of(sessions_.begin(), sessions_.end(),
                                [](const auto& session) { return !session->said_bye; });
  MutexLock lock(&mu_);
  if (used) {
    last_seen_ = Clock::now();
    return true;
  }
  const auto alone = Clock::now() - last_seen_;
  const bool leaving = options_.leave != nullptr && *options_.leave;
  if (kept == nullptr) return !leaving && alone < options_.unopened;
  const milliseconds linger(said_bye_ || leaving ? 0 : settings_.linger_ms);
  if (kept->idle()) return alone < linger;
  return alone < linger + options_.patience;
}

void CheckpointHelper::Rep::EndSessions(bool all) {
  if (all) stopping_ = true;
  for (auto at = sessions_.begin(); at != sessions_.end();)
    at = all || (*at)->ended ? sessions_.erase(at) : std::next(at);
}

Status CheckpointHelper::Rep::Run(const Context& ctx) {
  while (Needed()) {
    HR_RETURN_IF_ERROR(ctx.Check());
    Context look = ctx;
    look.deadline = Clock::now() + kLook;
    auto socket = listener_->Accept(look);
    EndSessions(false);
    if (socket.status().code() == Code::kDeadlineExceeded) continue;
    HR_RETURN_IF_ERROR(socket.status());
    auto session = std::make_unique<Session>();
    session->socket = *std::move(socket);
    HR_ASSIGN_OR_RETURN(session->thread,
                        Thread::Start("hr-helper", [this, raw = session.get()] { Serve(raw); }));
    sessions_.push_back(std::move(session));
  }
  return OkStatus();
}

void CheckpointHelper::Rep::Serve(Session* session) {
  Context ctx;
  ctx.cancelled = &stopping_;
  for (;;) {
    auto message = session->socket->Receive(ctx);
    if (!message.ok()) break;
    int descriptor = message->descriptor;
    auto answer = Handle(session, *message, &descriptor);
    if (descriptor >= 0) (void)SharedMemory::Adopt(descriptor);  // closes what nobody took
    Json json = answer.ok() ? std::move(answer->json)
                            : Json::MakeObject().Set("error", ErrorJson(answer.status()));
    const std::string text = json.Dump();
    if (!session->socket->Send(AsBytes(text), ctx, answer.ok() ? answer->descriptor : -1).ok())
      break;
  }
  // The trainer is gone, and with it what it had borrowed and not handed in.
  CountTrainer(session, 0);
  session->loans.clear();
  session->reading.clear();
  session->ended = true;
}

Result<Answer> CheckpointHelper::Rep::Handle(Session* session, const LocalSocket::Message& message,
                                             int* descriptor) {
  static const std::map<std::string_view, Call> kCalls = {
      {"hello", &Rep::Hello},       {"open", &Rep::Open},       {"borrow", &Rep::Borrow},
      {"return", &Rep::Return},     {"submit", &Rep::Submit},   {"look", &Rep::Look},
      {"arena", &Rep::ArenaOf},     {"memory", &Rep::Memory},   {"stall", &Rep::Stall},
      {"deadline", &Rep::Deadline}, {"expects", &Rep::Expects}, {"bye", &Rep::Bye}};
  HR_ASSIGN_OR_RETURN(Json json, Json::Parse(message.content));
  HR_ASSIGN_OR_RETURN(std::string ask, json.GetString("ask"));
  auto call = kCalls.find(ask);
  if (call == kCalls.end())
    return Status(Code::kUnimplemented, "a helper of another version was asked something");
  return (this->*call->second)(session, json, descriptor);
}

std::shared_ptr<SaveKeeper> CheckpointHelper::Rep::keeper() {
  MutexLock lock(&mu_);
  return keeper_;
}

Result<std::shared_ptr<SaveKeeper>> CheckpointHelper::Rep::NeedKeeper() {
  std::shared_ptr<SaveKeeper> kept = keeper();
  if (kept == nullptr) return Status(Code::kFailedPrecondition, "the helper was not opened yet");
  return kept;
}

// --- calls ---------------------------------------------------------------------------------------

Result<Answer> CheckpointHelper::Rep::Hello(Session*, const Json&, int*) {
  Answer answer;
  const std::shared_ptr<SaveKeeper> kept = keeper();
  answer.json.Set("version", kHelperProtocol).Set("process", ProcessId());
  if (kept == nullptr) return answer;
  const std::shared_ptr<Arena> arena = kept->arena();
  answer.json.Set("epoch", kept->epoch())
      .Set("newest", kept->newest())
      .Set("first_unready", kept->first_unready())
      .Set("first_pending", kept->first_pending())
      .Set("pending", uint64_t{kept->pending()})
      .Set("idle", kept->idle())
      .Set("in_memory", uint64_t{kept->InMemory().size()})
      .Set("arena_bytes", arena == nullptr ? uint64_t{0} : arena->size());
  if (const auto shared = kept->waiting_for_ranks())
    answer.json.Set("waits_for_ranks",
                    SaveIdJson(shared->id).Set("world_size", uint64_t{shared->world_size}));
  const std::vector<Drain*> drains = kept->drains();
  if (!drains.empty()) answer.json.Set("drain", ProgressJson(drains.back()->progress()));
  if (drains.size() > 1) answer.json.Set("peer_drain", ProgressJson(drains.front()->progress()));
  return answer;
}

void CheckpointHelper::Rep::CountTrainer(Session* session, uint64_t epoch) {
  MutexLock lock(&mu_);
  if (session->counted != 0 && --trainers_[session->counted] == 0)
    trainers_.erase(session->counted);
  session->counted = epoch;
  if (epoch != 0) ++trainers_[epoch];
}

Result<Answer> CheckpointHelper::Rep::Expects(Session*, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(const SaveId id, SaveIdFromJson(json));
  const std::shared_ptr<SaveKeeper> kept = keeper();
  Answer answer;
  bool expects = kept != nullptr && kept->Holds(id);
  MutexLock lock(&mu_);
  expects = expects || trainers_.contains(id.epoch);
  answer.json.Set("expects", expects);
  return answer;
}

// A keeper for these settings; one that is there goes on.
Status CheckpointHelper::Rep::OpenKeeper(const HelperSettings& settings) {
  {
    MutexLock lock(&mu_);
    if (keeper_ != nullptr && settings_.SameStores(settings)) {
      settings_ = settings;
      return OkStatus();
    }
  }
  // With other settings: another keeper, once this one has done its duty.
  if (auto old = keeper(); old != nullptr) old->Finish();
  {
    MutexLock lock(&mu_);
    keeper_.reset();
  }
  HR_ASSIGN_OR_RETURN(Tiers tiers, OpenTiers(settings.tiers, settings.storage));
  if (settings.rank == 0) HR_RETURN_IF_ERROR(RememberTiers(PosixFileSystem(), settings.tiers));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> made,
                      SaveKeeper::Start(std::move(tiers), KeeperOptionsOf(settings)));
  MutexLock lock(&mu_);
  keeper_ = std::move(made);
  settings_ = settings;
  return OkStatus();
}

Result<Answer> CheckpointHelper::Rep::Open(Session* session, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(HelperSettings settings, HelperSettings::FromJson(json));
  if (settings.rank != rank_)
    return Error(Code::kInvalidArgument, "rank {} opens the helper of rank {}", settings.rank,
                 rank_);
  MutexLock one(&open_mu_);
  if (auto kept = keeper(); kept != nullptr && settings.epoch < kept->epoch())
    return Error(Code::kFailedPrecondition, "another process has taken over: it has epoch {}",
                 kept->epoch());
  HR_RETURN_IF_ERROR(OpenKeeper(settings));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  HR_RETURN_IF_ERROR(kept->MakeArena(settings.arena_bytes, settings.threads));
  HR_RETURN_IF_ERROR(kept->Begin(settings.epoch));
  session->epoch = settings.epoch;
  CountTrainer(session, settings.epoch);
  {
    MutexLock lock(&mu_);
    said_bye_ = false;
  }
  return ArenaOf(session, json, nullptr);
}

Result<Answer> CheckpointHelper::Rep::ArenaOf(Session*, const Json&, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  Answer answer;
  answer.arena = kept->arena();
  if (answer.arena == nullptr) return Status(Code::kFailedPrecondition, "there is no arena yet");
  answer.descriptor = answer.arena->descriptor();
  answer.json.Set("arena_bytes", answer.arena->size());
  return answer;
}

Result<Answer> CheckpointHelper::Rep::Borrow(Session* session, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  HR_ASSIGN_OR_RETURN(const uint64_t bytes, json.GetUint("bytes"));
  if (session->epoch != kept->epoch())
    return Error(Code::kFailedPrecondition, "another process has taken over: it has epoch {}",
                 kept->epoch());
  Answer answer;
  Session::Borrowed borrowed;
  borrowed.arena = kept->arena();
  auto loan = kept->Borrow(bytes);
  if (loan.status().code() == Code::kDeadlineExceeded) {
    answer.json.Set("busy", true);
    return answer;
  }
  HR_RETURN_IF_ERROR(loan.status());
  borrowed.loan = *std::move(loan);
  const MutableBytes at = borrowed.loan.bytes();
  const uint64_t number = session->next_loan++;
  answer.json.Set("loan", number)
      .Set("offset", static_cast<uint64_t>(at.data() - borrowed.arena->memory().data()))
      .Set("bytes", uint64_t{at.size()});
  session->loans[number] = std::move(borrowed);
  return answer;
}

Result<Answer> CheckpointHelper::Rep::Return(Session* session, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(const uint64_t number, json.GetUint("loan"));
  session->loans.erase(number);
  return Answer();
}

Result<Answer> CheckpointHelper::Rep::Submit(Session* session, const Json& json, int* descriptor) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  HR_ASSIGN_OR_RETURN(const uint64_t number, json.GetUint("loan"));
  HR_ASSIGN_OR_RETURN(const uint64_t bytes, json.GetUint("bytes"));
  if (*descriptor < 0) return Status(Code::kInvalidArgument, "a save came without its description");
  HR_ASSIGN_OR_RETURN(auto description, SharedMemory::Adopt(std::exchange(*descriptor, -1)));
  auto at = session->loans.find(number);
  if (at == session->loans.end() || bytes > description->bytes().size())
    return Status(Code::kInvalidArgument, "a save came without its memory");
  HR_ASSIGN_OR_RETURN(RankSave save, ReadSaveDescription(description->bytes().first(bytes),
                                                         at->second.loan.bytes()));
  HR_ASSIGN_OR_RETURN(save.info.stall_ns, json.GetUint("stall_ns"));
  HR_ASSIGN_OR_RETURN(save.info.restore_ns, json.GetUint("restore_ns"));
  if (save.rank != rank_)
    return Error(Code::kInvalidArgument, "rank {} saves with the helper of rank {}", save.rank,
                 rank_);
  Session::Borrowed borrowed = std::move(at->second);
  session->loans.erase(at);
  HR_ASSIGN_OR_RETURN(const uint64_t taken, kept->Submit(std::move(save), std::move(borrowed.loan),
                                                         std::move(borrowed.arena)));
  Answer answer;
  answer.json.Set("number", taken);
  return answer;
}

Result<Answer> CheckpointHelper::Rep::Look(Session*, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  HR_ASSIGN_OR_RETURN(const uint64_t number, json.GetUint("number"));
  HR_ASSIGN_OR_RETURN(KeptStatus status, kept->Look(number));
  Answer answer;
  answer.json = KeptStatusJson(status);
  std::string errors;
  for (Drain* drain : kept->drains())
    if (const Status last = drain->progress().last; !last.ok())
      errors += (errors.empty() ? "" : "; ") + last.ToString();
  if (!errors.empty()) answer.json.Set("drain_error", EscapeText(errors));
  return answer;
}

Result<Answer> CheckpointHelper::Rep::Memory(Session* session, const Json&, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  session->reading = kept->InMemory();
  Answer answer;
  answer.arena = kept->arena();
  if (answer.arena == nullptr) return Status(Code::kFailedPrecondition, "there is no arena yet");
  HR_ASSIGN_OR_RETURN(std::string index,
                      WriteMemoryIndex(session->reading, answer.arena->memory()));
  HR_ASSIGN_OR_RETURN(answer.memory, SharedMemory::Create("headrace-index", index.size()));
  std::memcpy(answer.memory->bytes().data(), index.data(), index.size());
  answer.descriptor = answer.memory->descriptor();
  answer.json.Set("bytes", uint64_t{index.size()});
  return answer;
}

Result<Answer> CheckpointHelper::Rep::Stall(Session*, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  const Json* share = json.Find("share");
  if (share == nullptr || !(share->AsDouble(-1) >= 0 && share->AsDouble(-1) <= 1))
    return Status(Code::kInvalidArgument, "an input stall is a share of the time: 0 to 1");
  for (Drain* drain : kept->drains()) drain->ReportStall(share->AsDouble());
  return Answer();
}

Result<Answer> CheckpointHelper::Rep::Deadline(Session*, const Json& json, int*) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<SaveKeeper> kept, NeedKeeper());
  const Json* seconds = json.Find("seconds");
  if (seconds == nullptr || !(seconds->AsDouble(-1) >= 0 && seconds->AsDouble(-1) < 1e9))
    return Status(Code::kInvalidArgument, "a deadline lies 0 seconds or more ahead");
  for (Drain* drain : kept->drains()) drain->SetDeadline(seconds->AsDouble());
  return Answer();
}

Result<Answer> CheckpointHelper::Rep::Bye(Session* session, const Json&, int*) {
  session->said_bye = true;
  CountTrainer(session, 0);
  MutexLock lock(&mu_);
  said_bye_ = true;
  return Answer();
}

// -------------------------------------------------------------------------------------------------

CheckpointHelper::CheckpointHelper(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
CheckpointHelper::~CheckpointHelper() = default;

Result<std::unique_ptr<CheckpointHelper>> CheckpointHelper::Start(const std::string& home,
                                                                  uint32_t rank,
                                                                  const HelperOptions& options) {
  HR_ASSIGN_OR_RETURN(auto listener, LocalListener::Listen(HelperSocket(home, rank)));
  std::unique_ptr<FileLock> drain_lock;
  if (rank == 0) {
    auto locked = PosixFileSystem()->Lock(DrainLock(home));
    if (locked.status().code() == Code::kFailedPrecondition)
      return Error(Code::kFailedPrecondition,
                   "`headrace ckpt drain` works on {} just now: wait for it or end it", home);
    HR_RETURN_IF_ERROR(locked.status());
    drain_lock = *std::move(locked);
  }
  return std::unique_ptr<CheckpointHelper>(new CheckpointHelper(
      std::make_unique<Rep>(rank, options, std::move(drain_lock), std::move(listener))));
}

Status CheckpointHelper::Run(const Context& ctx) { return rep_->Run(ctx); }

}  // namespace headrace::checkpoint
