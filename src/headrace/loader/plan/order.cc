#include "headrace/loader/plan/order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "headrace/base/keyed_random.h"
#include "headrace/loader/plan/permutation.h"

namespace headrace::loader {
namespace {

// What a key is for, its third word; docs/formats/order.md. Never changed, never used twice.
enum Purpose : uint64_t {
  kDeal = 1,        // the sequence in which shards are dealt to lanes
  kShard = 2,       // the sequence of a lane's shards in an epoch
  kWindow = 3,      // the mixing of samples inside a window
  kSubstitute = 4,  // the substitute for a bad sample
};

constexpr uint32_t kDefaultMaxLanes = 64;
constexpr uint32_t kDefaultShardsOfLane = 4;  // at least, below that number of shards
constexpr uint32_t kDefaultMixedShards = 64;  // over all lanes

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The version as a number: the first 16 digits of a SHA-256 text, or any other text folded.
uint64_t HashVersion(std::string_view version) {
  const bool is_sha256 =
      version.size() == 64 &&
      std::all_of(version.begin(), version.end(), [](char c) { return HexDigit(c) >= 0; });
  uint64_t hash = 0;
  if (is_sha256) {
    for (char c : version.substr(0, 16)) hash = hash << 4 | static_cast<uint64_t>(HexDigit(c));
    return hash;
  }
  hash = CombineKey(0, version.size());
  for (char c : version) hash = CombineKey(hash, static_cast<unsigned char>(c));
  return hash;
}

// Shard numbers sorted by key; equal keys by number.
template <typename Key>
std::vector<uint32_t> SortShards(std::span<const uint32_t> shards, Key key) {
  std::vector<std::pair<uint64_t, uint32_t>> keyed;
  keyed.reserve(shards.size());
  for (uint32_t shard : shards) keyed.emplace_back(key(shard), shard);
  std::sort(keyed.begin(), keyed.end());
  std::vector<uint32_t> sorted;
  sorted.reserve(keyed.size());
  for (const auto& [hash, shard] : keyed) sorted.push_back(shard);
  return sorted;
}

// Adds the shard sizes up; kInvalidArgument when there is nothing, or too much, to order.
Result<std::vector<uint64_t>> SumShards(std::span<const uint64_t> shard_samples) {
  if (shard_samples.size() > UINT32_MAX) {
    return Error(Code::kInvalidArgument, "a dataset of {} shards is too large: the limit is {}",
                 shard_samples.size(), UINT32_MAX);
  }
  std::vector<uint64_t> first_sample{0};
  first_sample.reserve(shard_samples.size() + 1);
  for (uint64_t samples : shard_samples) {
    if (samples > kMaxSamples - first_sample.back()) {
      return Error(Code::kInvalidArgument, "the shards hold more than {} samples in all",
                   kMaxSamples);
    }
    first_sample.push_back(first_sample.back() + samples);
  }
  if (first_sample.back() == 0) {
    return Error(Code::kInvalidArgument,
                 "the dataset has no samples ({} shards): there is nothing to put in order",
                 shard_samples.size());
  }
  return first_sample;
}

// With few shards, many lanes would have one or two shards each, and the end of every epoch would
// come from those few lanes that have one more.
uint32_t DefaultLanes(size_t num_shards) {
  if (num_shards >= kDefaultMaxLanes) return kDefaultMaxLanes;
  uint32_t lanes = 1;
  while (lanes * 2 * kDefaultShardsOfLane <= num_shards) lanes *= 2;
  return lanes;
}

Result<OrderOptions> FillDefaults(OrderOptions options, size_t num_shards) {
  if (options.lanes > num_shards) {
    return Error(Code::kInvalidArgument,
                 "lanes must be 1 to {}, the number of shards, or 0 for the default; found {}",
                 num_shards, options.lanes);
  }
  if (!options.shuffle) {
    options.lanes = options.window_shards = 1;
    return options;
  }
  if (options.lanes == 0) {
    options.lanes = DefaultLanes(num_shards);
  }
  if (options.window_shards == 0) {
    options.window_shards = std::max(2u, kDefaultMixedShards / options.lanes);
  }
  return options;
}

}  // namespace

struct Order::Deal {
  // From `position` on, `lanes` lanes (the longest ones) take turns, starting with number `index`
  // of each. The table has one entry a different lane length, so at most one a lane.
  struct Stretch {
    uint64_t position, index;
    uint32_t lanes;
  };
  // Where a position falls.
  struct Turn {
    uint32_t lane;
    uint64_t index;  // number of the sample in its lane
  };

  OrderOptions options;
  uint64_t version_hash = 0;
  std::vector<uint64_t> first_sample;  // prefix sums over shards, shards + 1
  std::vector<uint32_t> shards;        // all lanes joined, each in dealing order
  std::vector<uint32_t> lane_begin;    // into `shards`, lanes + 1
  std::vector<uint64_t> lane_samples;  // falling
  std::vector<Stretch> stretches;

  uint64_t ShardSamples(uint32_t shard) const {
    return first_sample[shard + 1] - first_sample[shard];
  }
  uint64_t Key(Purpose purpose) const { return HashKey(version_hash, options.seed, purpose); }
  std::span<const uint32_t> LaneShards(uint32_t lane) const {
    return std::span(shards).subspan(lane_begin[lane], lane_begin[lane + 1] - lane_begin[lane]);
  }
  Turn TurnAt(uint64_t position) const {
    const Stretch* stretch = &stretches[0];
    if (stretches.size() > 1 && position >= stretches[1].position) {
      stretch = &*std::prev(std::upper_bound(
          stretches.begin(), stretches.end(), position,
          [](uint64_t value, const Stretch& entry) { return value < entry.position; }));
    }
    const uint64_t offset = position - stretch->position;
    return {static_cast<uint32_t>(offset % stretch->lanes),
            stretch->index + offset / stretch->lanes};
  }

  // The other way round: where a lane's sample with this number stands in the stream.
  uint64_t PositionOf(Turn turn) const {
    const Stretch& stretch = *std::prev(
        std::upper_bound(stretches.begin(), stretches.end(), turn.index,
                         [](uint64_t value, const Stretch& entry) { return value < entry.index; }));
    return stretch.position + (turn.index - stretch.index) * stretch.lanes + turn.lane;
  }

  void DealShards();
  void DealNaturally();
  void FindStretches();
};

void Order::Deal::DealNaturally() {
  shards.resize(first_sample.size() - 1);
  std::iota(shards.begin(), shards.end(), 0u);
  lane_begin = {0, static_cast<uint32_t>(shards.size())};
  lane_samples = {first_sample.back()};
}

// Deals the shards, in keyed sequence, each to the lane with the fewest samples so far, and then
// numbers the lanes by falling number of samples.
void Order::Deal::DealShards() {
  std::vector<uint32_t> all(first_sample.size() - 1);
  std::iota(all.begin(), all.end(), 0u);
  const uint64_t key = Key(kDeal);
  const auto sequence = SortShards(all, [&](uint32_t shard) { return CombineKey(key, shard); });

  struct Lane {
    uint64_t samples = 0;
    std::vector<uint32_t> shards;
  };
  std::vector<Lane> lanes(options.lanes);
  using Fill = std::pair<uint64_t, uint32_t>;  // samples, lane
  std::priority_queue<Fill, std::vector<Fill>, std::greater<>> emptiest;
  for (uint32_t lane = 0; lane < options.lanes; ++lane) emptiest.emplace(0, lane);
  for (uint32_t shard : sequence) {
    const uint32_t lane = emptiest.top().second;
    emptiest.pop();
    lanes[lane].shards.push_back(shard);
    lanes[lane].samples += ShardSamples(shard);
    emptiest.emplace(lanes[lane].samples, lane);
  }
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane& a, const Lane& b) { return a.samples > b.samples; });
  lane_begin = {0};
  for (const Lane& lane : lanes) {
    shards.insert(shards.end(), lane.shards.begin(), lane.shards.end());
    lane_begin.push_back(static_cast<uint32_t>(shards.size()));
    lane_samples.push_back(lane.samples);
  }
}

void Order::Deal::FindStretches() {
  uint64_t position = 0, index = 0;
  for (uint32_t lanes = static_cast<uint32_t>(lane_samples.size()); lanes > 0; --lanes) {
    const uint64_t end = lane_samples[lanes - 1];
    if (end == index) continue;
    stretches.push_back({position, index, lanes});
    position += (end - index) * lanes;
    index = end;
  }
}

Result<Order> Order::Create(std::span<const uint64_t> shard_samples, std::string_view version,
                            const OrderOptions& options) {
  auto deal = std::make_shared<Deal>();
  HR_ASSIGN_OR_RETURN(deal->first_sample, SumShards(shard_samples));
  HR_ASSIGN_OR_RETURN(deal->options, FillDefaults(options, shard_samples.size()));
  deal->version_hash = HashVersion(version);
  if (deal->options.shuffle) {
    deal->DealShards();
  } else {
    deal->DealNaturally();
  }
  deal->FindStretches();
  return Order(std::move(deal));
}

Order::Order(std::shared_ptr<const Deal> deal) : deal_(std::move(deal)) {}

const OrderOptions& Order::options() const { return deal_->options; }
uint64_t Order::num_samples() const { return deal_->first_sample.back(); }
size_t Order::num_shards() const { return deal_->first_sample.size() - 1; }
uint64_t Order::ShardSamples(uint32_t shard) const { return deal_->ShardSamples(shard); }
std::span<const uint32_t> Order::LaneShards(uint32_t lane) const { return deal_->LaneShards(lane); }
uint64_t Order::LaneSamples(uint32_t lane) const { return deal_->lane_samples[lane]; }
uint32_t Order::num_lanes() const { return static_cast<uint32_t>(deal_->lane_samples.size()); }
uint64_t Order::EvenPositions() const { return deal_->lane_samples.back() * num_lanes(); }
uint32_t Order::LaneAt(uint64_t position) const { return deal_->TurnAt(position).lane; }

Order::Place Order::Locate(uint64_t sample_id) const {
  const auto& first = deal_->first_sample;
  const auto after = std::upper_bound(first.begin(), first.end(), sample_id);
  const auto shard = static_cast<uint32_t>(after - first.begin() - 1);
  return {shard, sample_id - first[shard]};
}

uint64_t Order::Substitute(uint64_t epoch, uint64_t position, uint32_t attempt) const {
  uint64_t key = CombineKey(deal_->Key(kSubstitute), epoch);
  key = CombineKey(CombineKey(key, position), attempt);
  return KeyedRandom(key).NextBelow(num_samples());
}

struct EpochOrder::Tables {
  std::shared_ptr<const Order::Deal> deal;
  uint64_t epoch = 0;
  // All lanes joined, as in Deal::lane_begin: the epoch's sequence of shards, and for each the
  // number, in its lane, of its first sample.
  std::vector<uint32_t> shards;
  std::vector<uint64_t> shard_begin;
  // All windows of all lanes joined.
  struct Window {
    uint64_t begin;  // number in its lane of its first sample
    uint64_t size;   // samples
    uint64_t key;
    uint32_t first_shard, last_shard;  // [first, last) into `shards`
  };
  std::vector<Window> windows;
  std::vector<uint32_t> window_begin;  // lanes + 1, into `windows`

  void AddLane(uint32_t lane);
  const Window& WindowOf(Order::Deal::Turn turn) const;
  uint64_t SampleAt(uint64_t position) const;
};

void EpochOrder::Tables::AddLane(uint32_t lane) {
  const uint64_t shard_key = HashKey(deal->version_hash, deal->options.seed, kShard, epoch, lane);
  const uint64_t window_key = HashKey(deal->version_hash, deal->options.seed, kWindow, epoch, lane);
  const bool shuffle = deal->options.shuffle;
  const auto sequence = SortShards(deal->LaneShards(lane), [&](uint32_t shard) {
    return shuffle ? CombineKey(shard_key, shard) : shard;
  });
  uint64_t begin = 0;  // in the lane
  for (size_t first = 0; first < sequence.size(); first += deal->options.window_shards) {
    const size_t last = std::min<size_t>(sequence.size(), first + deal->options.window_shards);
    const uint64_t number = first / deal->options.window_shards;
    Window window{begin, 0, CombineKey(window_key, number), static_cast<uint32_t>(shards.size()),
                  0};
    for (size_t i = first; i < last; ++i) {
      shards.push_back(sequence[i]);
      shard_begin.push_back(begin);
      begin += deal->ShardSamples(sequence[i]);
    }
    window.size = begin - window.begin;
    window.last_shard = static_cast<uint32_t>(shards.size());
    windows.push_back(window);
  }
  window_begin.push_back(static_cast<uint32_t>(windows.size()));
}

// The last window of the lane that begins at or before the index; windows of empty shards begin
// where the next one does and so are never it, unless nothing follows, where no index leads.
const EpochOrder::Tables::Window& EpochOrder::Tables::WindowOf(Order::Deal::Turn turn) const {
  const auto first = windows.begin() + window_begin[turn.lane];
  const auto last = windows.begin() + window_begin[turn.lane + 1];
  return *std::prev(std::upper_bound(
      first, last, turn.index, [](uint64_t index, const Window& w) { return index < w.begin; }));
}

uint64_t EpochOrder::Tables::SampleAt(uint64_t position) const {
  if (!deal->options.shuffle) return position;
  const Order::Deal::Turn turn = deal->TurnAt(position);
  const Window& window = WindowOf(turn);
  const uint64_t index =
      window.begin + KeyedPermutation(window.size, window.key)(turn.index - window.begin);
  const auto first = shard_begin.begin() + window.first_shard;
  const auto last = shard_begin.begin() + window.last_shard;
  const auto shard = std::prev(std::upper_bound(first, last, index)) - shard_begin.begin();
  return deal->first_sample[shards[shard]] + index - shard_begin[shard];
}

EpochOrder Order::ForEpoch(uint64_t epoch) const {
  auto tables = std::make_shared<EpochOrder::Tables>();
  tables->deal = deal_;
  tables->epoch = epoch;
  tables->window_begin = {0};
  tables->shards.reserve(num_shards());
  tables->shard_begin.reserve(num_shards());
  for (uint32_t lane = 0; lane < num_lanes(); ++lane) tables->AddLane(lane);
  return EpochOrder(std::move(tables));
}

EpochOrder::EpochOrder(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}

uint64_t EpochOrder::SampleAt(uint64_t position) const { return tables_->SampleAt(position); }
uint64_t EpochOrder::num_samples() const { return tables_->deal->first_sample.back(); }
uint64_t EpochOrder::epoch() const { return tables_->epoch; }
uint32_t EpochOrder::LaneAt(uint64_t position) const {
  return tables_->deal->TurnAt(position).lane;
}

uint32_t EpochOrder::NumWindows(uint32_t lane) const {
  return tables_->window_begin[lane + 1] - tables_->window_begin[lane];
}

std::span<const uint32_t> EpochOrder::WindowShards(uint32_t lane, uint32_t window) const {
  const Tables::Window& w = tables_->windows[tables_->window_begin[lane] + window];
  return std::span(tables_->shards).subspan(w.first_shard, w.last_shard - w.first_shard);
}

uint32_t EpochOrder::WindowAt(uint64_t position) const {
  const Order::Deal::Turn turn = tables_->deal->TurnAt(position);
  return static_cast<uint32_t>(&tables_->WindowOf(turn) - &tables_->windows[0]) -
         tables_->window_begin[turn.lane];
}

EpochOrder::Span EpochOrder::WindowSpan(uint32_t lane, uint32_t window) const {
  const Tables::Window& w = tables_->windows[tables_->window_begin[lane] + window];
  if (w.size == 0) return {};
  return {tables_->deal->PositionOf({lane, w.begin}),
          tables_->deal->PositionOf({lane, w.begin + w.size - 1}), w.size};
}

}  // namespace headrace::loader
