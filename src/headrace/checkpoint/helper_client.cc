#include "headrace/checkpoint/helper_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "headrace/checkpoint/save_description.h"
#include "headrace/env/process.h"
#include "headrace/object/pause.h"

namespace headrace::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A helper that does not answer so long hangs.
constexpr seconds kShort{120}, kLong{3600};
constexpr milliseconds kFirstPause{1}, kLongestPause{100};

Status Gone(const Status& why) {
  return Error(Code::kUnavailable,
               "the checkpoint helper is gone ({}): what was in its memory only is lost; what was "
               "durable is not",
               why.message());
}

Json Question(std::string_view what) { return Json::MakeObject().Set("ask", what); }

}  // namespace

HelperClient::HelperClient(std::unique_ptr<LocalSocket> socket, std::string home, uint32_t rank)
    : fork_(ForkGeneration()), home_(std::move(home)), rank_(rank), socket_(std::move(socket)) {}

Result<std::unique_ptr<HelperClient>> HelperClient::Connect(const std::string& home,
                                                            uint32_t rank) {
  HR_ASSIGN_OR_RETURN(auto socket, LocalSocket::Connect(HelperSocket(home, rank)));
  std::unique_ptr<HelperClient> client(new HelperClient(std::move(socket), home, rank));
  auto hello = client->Hello();
  if (hello.status().code() == Code::kUnavailable)  // it was just ending
    return Error(Code::kNotFound, "no helper listens for {}", home);
  HR_RETURN_IF_ERROR(hello.status());
  HR_ASSIGN_OR_RETURN(const uint64_t version, hello->GetUint("version"));
  if (version == kHelperProtocol) return client;
  const Json* process = hello->Find("process");
  return Error(
      Code::kFailedPrecondition,
      "a helper of another version of headrace runs for {} (process {}): wait for its end, "
      "or end it once its drain is done",
      home, process == nullptr ? 0 : process->AsInt());
}

Result<Json> HelperClient::Ask(const Json& request, seconds limit, int send, int* got) {
  if (ForkGeneration() != fork_)
    return Status(Code::kFailedPrecondition,
                  "a checkpointer cannot be used in a forked child: make another one there");
  MutexLock lock(&mu_);
  if (!broken_.ok()) return broken_;
  Context ctx;
  ctx.deadline = Context::Clock::now() + limit;
  const std::string text = request.Dump();
  Status sent = socket_->Send(AsBytes(text), ctx, send);
  Result<LocalSocket::Message> message =
      sent.ok() ? socket_->Receive(ctx) : Result<LocalSocket::Message>(std::move(sent));
  if (!message.ok()) {
    // The answer may still come: nothing may be asked any more.
    broken_ = Gone(message.status());
    return broken_;
  }
  if (message->descriptor >= 0) {
    if (got == nullptr) {
      (void)SharedMemory::Adopt(message->descriptor);  // closes it
    } else {
      *got = message->descriptor;
    }
  }
  HR_ASSIGN_OR_RETURN(Json answer, Json::Parse(message->content));
  HR_RETURN_IF_ERROR(ErrorOf(answer));
  return answer;
}

Result<Json> HelperClient::Hello() { return Ask(Question("hello"), kShort); }

// Whether the helpers of all other ranks have the save that this one waits with, or may get it.
bool HelperClient::MayBeWhole(const Json& hello) {
  const Json* shared = hello.Find("waits_for_ranks");
  if (shared == nullptr) return true;
  const auto id = SaveIdFromJson(*shared);
  const auto world = shared->GetUint("world_size");
  if (!id.ok() || !world.ok()) return true;
  for (uint32_t rank = 0; rank < *world; ++rank) {
    if (rank == rank_) continue;
    auto other = Connect(home_, rank);
    if (other.status().code() == Code::kNotFound) return false;
    if (!other.ok()) continue;
    auto answer = (*other)->Ask(SaveIdJson(*id).Set("ask", "expects"), kShort);
    const Json* expects = answer.ok() ? answer->Find("expects") : nullptr;
    if (expects != nullptr && !expects->AsBool()) return false;
  }
  return true;
}

Status HelperClient::Settle(bool published, const Context& ctx) {
  std::optional<uint64_t> newest;
  milliseconds wait = kFirstPause;
  for (;;) {
    HR_ASSIGN_OR_RETURN(Json hello, Hello());
    const Json* unready = hello.Find(published ? "first_pending" : "first_unready");
    if (unready == nullptr || unready->AsUint() == 0) return OkStatus();
    if (!newest) {
      HR_ASSIGN_OR_RETURN(newest, hello.GetUint("newest"));
    }
    if (unready->AsUint() > *newest) return OkStatus();
    // Most saves are ready before anybody else needs to be asked.
    if (wait == kLongestPause && !MayBeWhole(hello)) return OkStatus();
    HR_RETURN_IF_ERROR(object::PauseFor(wait, ctx));
    wait = std::min(wait * 2, kLongestPause);
  }
}

Status HelperClient::Open(const HelperSettings& settings) {
  Json request = settings.ToJson();
  request.Set("ask", "open");
  int descriptor = -1;
  HR_RETURN_IF_ERROR(Ask(std::move(request), kLong, -1, &descriptor).status());
  HR_ASSIGN_OR_RETURN(arena_, SharedMemory::Adopt(descriptor));
  epoch_ = settings.epoch;
  return arena_->Touch(settings.threads);  // of this process's own page table
}

HelperClient::Loan& HelperClient::Loan::operator=(Loan&& other) noexcept {
  if (this == &other) return *this;
  Return();
  client_ = std::exchange(other.client_, nullptr);
  number_ = other.number_;
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void HelperClient::Loan::Return() {
  if (client_ == nullptr) return;
  bytes_ = {};
  // One that is gone has taken its memory along.
  (void)std::exchange(client_, nullptr)->Ask(Question("return").Set("loan", number_), kShort);
}

Result<HelperClient::Loan> HelperClient::Borrow(uint64_t bytes, const Context& ctx) {
  milliseconds wait = kFirstPause;
  for (;;) {
    HR_ASSIGN_OR_RETURN(Json answer, Ask(Question("borrow").Set("bytes", bytes), kShort));
    const Json* busy = answer.Find("busy");
    if (busy == nullptr || !busy->AsBool()) {
      HR_ASSIGN_OR_RETURN(const uint64_t offset, answer.GetUint("offset"));
      HR_ASSIGN_OR_RETURN(const uint64_t size, answer.GetUint("bytes"));
      Loan loan;
      HR_ASSIGN_OR_RETURN(loan.number_, answer.GetUint("loan"));
      if (offset > arena_bytes() || size > arena_bytes() - offset || size < bytes)
        return Status(Code::kInternal, "the helper lent memory that is not in its arena");
      loan.client_ = this;
      loan.bytes_ = arena_->bytes().subspan(offset, size);
      return loan;
    }
    HR_RETURN_IF_ERROR(object::PauseFor(wait, ctx));
    wait = std::min(wait * 2, kLongestPause);
  }
}

Result<uint64_t> HelperClient::Submit(RankSave save, Loan loan) {
  SaveId& id = save.info.id;
  id.epoch = epoch_;
  {
    MutexLock lock(&mu_);
    id.attempt = ++attempts_[id.step];
  }
  HR_ASSIGN_OR_RETURN(const std::string description, DescribeSave(save, loan.bytes()));
  HR_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create("headrace-save", description.size()));
  std::memcpy(memory->bytes().data(), description.data(), description.size());
  HR_ASSIGN_OR_RETURN(Json answer, Ask(Question("submit")
                                           .Set("loan", loan.number_)
                                           .Set("bytes", uint64_t{description.size()})
                                           .Set("stall_ns", save.info.stall_ns)
                                           .Set("restore_ns", save.info.restore_ns),
                                       kShort, memory->descriptor()));
  loan.client_ = nullptr;  // the helper's now
  return answer.GetUint("number");
}

Result<KeptStatus> HelperClient::Look(uint64_t number) {
  HR_ASSIGN_OR_RETURN(Json answer, Ask(Question("look").Set("number", number), kShort));
  return KeptStatusFromJson(answer);
}

Result<KeptStatus> HelperClient::Wait(uint64_t number, Level level, const Context& ctx) {
  milliseconds wait = kFirstPause;
  for (;;) {
    HR_ASSIGN_OR_RETURN(Json answer, Ask(Question("look").Set("number", number), kShort));
    HR_ASSIGN_OR_RETURN(KeptStatus status, KeptStatusFromJson(answer));
    if (status.level >= level) return status;
    HR_RETURN_IF_ERROR(status.failed);
    Status paused = object::PauseFor(wait, ctx);
    const Json* error = answer.Find("drain_error");
    if (paused.code() == Code::kDeadlineExceeded)
      return Error(Code::kDeadlineExceeded, "{} has reached {} and not yet {}{}", status.id.Text(),
                   LevelName(status.level), LevelName(level),
                   error == nullptr
                       ? std::string()
                       : fmt::format("; the drain last failed with: {}", error->AsString()));
    HR_RETURN_IF_ERROR(paused);
    wait = std::min(wait * 2, kLongestPause);
  }
}

Status HelperClient::ReportStall(double share) {
  return Ask(Question("stall").Set("share", share), kShort).status();
}
Status HelperClient::SetDeadline(double seconds) {
  return Ask(Question("deadline").Set("seconds", seconds), kShort).status();
}
Status HelperClient::Bye() { return Ask(Question("bye"), kShort).status(); }

Result<std::unique_ptr<HelperMemory>> HelperMemory::Read(const std::string& home, uint32_t rank,
                                                         const Context& ctx) {
  std::unique_ptr<HelperMemory> memory(new HelperMemory());
  auto client = HelperClient::Connect(home, rank);
  if (client.status().code() == Code::kNotFound) return std::unique_ptr<HelperMemory>();
  HR_RETURN_IF_ERROR(client.status());
  memory->client_ = *std::move(client);
  HR_RETURN_IF_ERROR(memory->client_->Settle(false, ctx));
  int descriptor = -1;
  // First what is in memory, which then stays; then the arena it lies in.
  auto answer = memory->client_->Ask(Question("memory"), kShort, -1, &descriptor);
  if (answer.status().code() == Code::kFailedPrecondition)  // it was not opened yet
    return std::unique_ptr<HelperMemory>();
  HR_RETURN_IF_ERROR(answer.status());
  HR_ASSIGN_OR_RETURN(memory->index_, SharedMemory::Adopt(descriptor));
  HR_ASSIGN_OR_RETURN(const uint64_t bytes, answer->GetUint("bytes"));
  descriptor = -1;
  HR_RETURN_IF_ERROR(memory->client_->Ask(Question("arena"), kShort, -1, &descriptor).status());
  HR_ASSIGN_OR_RETURN(memory->arena_, SharedMemory::Adopt(descriptor));
  const Bytes index = memory->index_->bytes();
  if (bytes > index.size())
    return Status(Code::kDataLoss, "the index of a helper's memory is cut off");
  HR_ASSIGN_OR_RETURN(memory->content_,
                      ReadMemoryIndex(index.first(bytes), memory->arena_->bytes()));
  return memory;
}

}  // namespace headrace::checkpoint
