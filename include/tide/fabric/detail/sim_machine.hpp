// SPDX-License-Identifier: Apache-2.0
//
// The machine that a SimCluster plays: lanes and counters of all its hosts in virtual time. A host is one rank, however
// many fabrics it has.

#pragma once

#include <tide/fabric/detail/failure.hpp>   // Failure
#include <tide/fabric/detail/sim_lane.hpp>  // SimLane, SimProgram
#include <tide/fabric/sim_options.hpp>      // SimOptions
#include <tide/plan/virtual_time.hpp>       // VirtualTime

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// What comes to a rank: a word rises, behind the bytes of a put where there are some.
struct SimLanding {
  SimProgram* program = nullptr;  // of the rank whose word it is; null where only bytes come
  std::int32_t word = 0;
  std::int32_t wire = -1;  // of `from`, where the network has a hook
  std::uint64_t value = 0;
  std::uint32_t from = 0;    // host
  std::int32_t parcel = -1;  // of the machine
};

class SimMachine {
 public:
  SimMachine(const SimOptions& options, std::size_t hosts, Failure& failure)
      : options_(options), failure_(failure), hosts_(hosts), time_(*this, options_.machine, hosts, options_.seed) {}
  SimMachine(const SimMachine&) = delete;
  SimMachine& operator=(const SimMachine&) = delete;

  [[nodiscard]] const SimOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t hosts() const noexcept { return hosts_.size(); }
  [[nodiscard]] bool moves_bytes() const noexcept { return options_.memory == SimMemory::real; }
  [[nodiscard]] double now() const noexcept { return now_; }
  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

  // ---- what hosts do, between steps ----

  std::uint32_t add_lane(std::size_t host) {
    hosts_[host].lanes.emplace_back();
    return time_.add_lane(host);
  }
  [[nodiscard]] std::deque<SimLane>& lanes(std::size_t host) noexcept { return hosts_[host].lanes; }
  [[nodiscard]] const std::deque<SimLane>& lanes(std::size_t host) const noexcept { return hosts_[host].lanes; }
  [[nodiscard]] bool awaits(std::size_t host, std::size_t lane) const noexcept { return time_.awaits(host, lane); }

  std::int32_t add_counter(std::size_t host) {
    hosts_[host].counters.push_back(0);
    return static_cast<std::int32_t>(hosts_[host].counters.size()) - 1;
  }
  [[nodiscard]] std::uint64_t counter(std::size_t host, std::int32_t index) const noexcept {
    return hosts_[host].counters[static_cast<std::size_t>(index)];
  }

  // Makes room for the words of a program and tells the machine of it.
  void add_program(std::size_t host, SimProgram& program, SignalWords words) {
    program.key = hosts_[host].programs++ << 32;
    program.words.assign(static_cast<std::size_t>(words.count()), 0);
    for_each_start(program.variants, options_.host.first_run,
                   [&](index_t word, std::uint64_t value) { program.words[static_cast<std::size_t>(word)] = value; });
  }

  void push(std::size_t host, std::size_t index, SimItem item) {
    SimLane& lane = hosts_[host].lanes[index];
    lane.items.push_back(std::move(item));
    if (lane.active) return;
    lane.active = true;
    fresh_.emplace_back(host, index);
  }

  void count(const Tally& launched) noexcept { tally_ += launched; }

  // ---- what time does ----

  // When something happens next; `never` where nothing does.
  [[nodiscard]] double next() {
    wake_fresh();
    return time_.next();
  }
  void pass_to(double time) noexcept { now_ = std::max(now_, time); }
  // Lets it happen.
  void step() {
    now_ = time_.next();
    time_.step();
  }
  // Hosts for which something has changed since they were last asked for.
  [[nodiscard]] std::vector<std::size_t>& touched() noexcept { return touched_; }

  // What an op of a wait needs, and has.
  [[nodiscard]] std::uint64_t expected(const SimItem& item, const Op& op) const noexcept {
    return epoch(options_.host.first_run + item.run, op.per_run(), op.value());
  }

  static constexpr double never = VirtualTime<SimMachine, SimLanding>::never;

 private:
  friend class VirtualTime<SimMachine, SimLanding>;

  static constexpr std::int64_t counter_key = std::int64_t{1} << 61;
  static constexpr std::int64_t room_key = std::int64_t{1} << 62;

  // What is in order: what a lane of a program sends to a rank.
  struct Wire {
    const SimProgram* program;
    std::int32_t lane;
    std::int32_t to;
    double last = 0;
    index_t on_its_way = 0;
    bool cut = false;
  };

  struct Host {
    std::deque<SimLane> lanes{};
    std::vector<std::uint64_t> counters{};
    std::vector<Wire> wires{};
    index_t on_their_way = 0;
    std::int64_t programs = 0;
  };

  // Lanes that have got something to do, rank by rank, whichever rank's host was first.
  void wake_fresh() {
    if (fresh_.empty()) return;
    std::stable_sort(fresh_.begin(), fresh_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [host, lane] : fresh_) time_.wake(now_, host, lane);
    fresh_.clear();
  }

  [[nodiscard]] static double seconds_of(Duration duration) noexcept {
    return std::chrono::duration<double>(duration).count();
  }
  [[nodiscard]] double jitter() noexcept {
    if (options_.seed == 0 || options_.jitter <= Duration::zero()) return 0;
    const std::uint64_t bits = random_bits(~options_.seed, jitters_++);
    return static_cast<double>(bits >> 11U) * 0x1.0p-53 * seconds_of(options_.jitter);
  }

  // ---- the work of VirtualTime ----

  [[nodiscard]] const Op* head(double now, std::uint32_t h, std::uint32_t l) {
    SimLane& lane = hosts_[h].lanes[l];
    if (lane.in_op) finish(h, lane);
    while (!lane.items.empty() && !failure_.failed()) {
      SimItem& item = lane.items.front();
      switch (item.kind) {
        case SimItem::Kind::ops: {
          enter(h, lane);
          if (!lane.has_op()) {
            leave(h, lane);
            break;
          }
          const Op& op = lane.op();
          if (!lane.asked && !ask(now, h, l, lane, op)) return nullptr;
          if (!has_room_for(hosts_[h], lane, op)) {
            time_.await(h, l, room_key);
            lane.since = now;
            return nullptr;
          }
          return &op;
        }
        case SimItem::Kind::raise:
          raise_counter(h, item.counter, item.value);
          pop(h, lane);
          break;
        case SimItem::Kind::await:
          if (counter(h, item.counter) < item.value) {
            time_.await(h, l, counter_key | item.counter);
            lane.since = now;
            return nullptr;
          }
          pop(h, lane);
          break;
        case SimItem::Kind::zero:
          if (moves_bytes() && item.bytes > 0) std::memset(item.target, 0, static_cast<std::size_t>(item.bytes));
          pop(h, lane);
          break;
        case SimItem::Kind::function:
          if (const auto thrown = thrown_by(item.function)) {
            failure_.set(Errc::operation, noted(function_threw(item.rank, item.stream, *thrown), *item.whose));
            return nullptr;
          }
          pop(h, lane);
          break;
        case SimItem::Kind::busy:
          if (!lane.asked) {
            lane.asked = true;
            time_.wake(now + item.seconds, h, l);
            return nullptr;
          }
          pop(h, lane);
          break;
      }
    }
    if (lane.items.empty()) lane.active = false;
    return nullptr;
  }

  [[nodiscard]] bool reached(std::uint32_t h, std::uint32_t l, const Op& op) const {
    const SimItem& item = hosts_[h].lanes[l].items.front();
    return has_reached(item.program->words[static_cast<std::size_t>(op.word())], expected(item, op));
  }
  [[nodiscard]] std::int64_t key(std::uint32_t h, std::uint32_t l, const Op& op) const {
    return hosts_[h].lanes[l].items.front().program->key | op.word();
  }
  [[nodiscard]] double call_seconds(std::uint32_t h, std::uint32_t l, const Op&) const {
    const SimLane& lane = hosts_[h].lanes[l];
    return costs(lane).begins[static_cast<std::size_t>(lane.seq())] ? options_.machine.call_seconds : 0;
  }
  template <class F>
  void for_each_use(std::uint32_t h, std::uint32_t l, const Op& op, const F& f) const {
    const SimLane& lane = hosts_[h].lanes[l];
    const SimProgram& program = *lane.items.front().program;
    detail::for_each_use(costs(lane).collective, program.rank(), op, [&](Rank rank, Resource resource, index_t bytes) {
      f(Rank{static_cast<index_t>(program.host(rank))}, resource, bytes);
    });
  }

  void begin(double now, double end, std::uint32_t h, std::uint32_t l, const Op& op) {
    SimLane& lane = hosts_[h].lanes[l];
    if (options_.watch) {
      const auto thrown = thrown_by([&] { options_.watch(point(lane, op), now, end); });
      if (thrown) fail_at(lane, Errc::operation, hook_threw(place(lane), op, *thrown));
    }
    lane.in_op = true;
    if (op.raises()) {
      send(end, h, lane, op);
    } else {
      lane.writes = op.moves() && moves_bytes();
    }
    if (end <= now) finish(h, lane);
  }

  void land(double now, const SimLanding& landing) {
    if (landing.wire >= 0) {
      Host& sender = hosts_[landing.from];
      --sender.on_their_way;
      --sender.wires[static_cast<std::size_t>(landing.wire)].on_its_way;
      time_.raised(now, landing.from, room_key);
    }
    if (landing.parcel >= 0) {
      parcels_[static_cast<std::size_t>(landing.parcel)].deliver();
      parcels_[static_cast<std::size_t>(landing.parcel)] = {};
      free_parcels_.push_back(landing.parcel);
    }
    if (landing.program == nullptr) return;
    SimProgram& program = *landing.program;
    std::uint64_t& word = program.words[static_cast<std::size_t>(landing.word)];
    if (!has_reached(word, landing.value)) word = landing.value;
    time_.raised(now, program.host(program.rank()), program.key | landing.word);
  }

  // ---- items and ops ----

  [[nodiscard]] static const SimCosts& costs(const SimLane& lane) {
    return lane.items.front().program->costs[static_cast<std::size_t>(lane.run().variant_index)];
  }
  [[nodiscard]] static HostHookPoint point(const SimLane& lane, const Op& op) {
    const SimItem& item = lane.items.front();
    return {item.program->label, item.run, item.program->rank(), lane.variant().plan.lanes[op.lane], lane.seq(), op};
  }

  void enter(std::size_t host, SimLane& lane) {
    if (lane.entered) return;
    lane.entered = true;
    const SimItem& item = lane.items.front();
    if (item.lane != SimItem::all_lanes) return pass_exits(host, lane, item.lane, 0);
    lane.passed.assign(lane.variant().ops.size(), 0);
    for (std::size_t l = 0; l < lane.passed.size(); ++l) pass_exits(host, lane, l, 0);
  }

  void leave(std::size_t host, SimLane& lane) {
    const SimItem& item = lane.items.front();
    SimProgram::Run& run = lane.run();
    run.lanes_left = item.lane == SimItem::all_lanes ? 0 : run.lanes_left - 1;
    const bool caller =
        item.lane == SimItem::all_lanes || lane.variant().plan.lanes[item.lane].kind == LaneKind::caller;
    if (caller) raise_counter(host, item.program->caller_counter, item.run + 1);
    pop(host, lane);
  }

  void pop(std::size_t host, SimLane& lane) {
    lane.items.pop_front();
    lane.position = 0;
    lane.entered = lane.asked = false;
    touched_.push_back(host);
  }

  void finish(std::size_t host, SimLane& lane) {
    const Op& op = lane.op();
    const SimItem& item = lane.items.front();
    if (lane.writes) item.program->ops.run(op, lane.run());
    lane.in_op = lane.writes = lane.asked = false;
    ++lane.position;
    if (item.lane == SimItem::all_lanes) {
      pass_exits(host, lane, op.lane, ++lane.passed[op.lane]);
    } else {
      pass_exits(host, lane, item.lane, static_cast<index_t>(lane.position));
    }
  }

  void pass_exits(std::size_t host, const SimLane& lane, std::size_t of, index_t position) {
    const SimItem& item = lane.items.front();
    for (const Exit& exit : lane.variant().plan.exits) {
      if (static_cast<std::size_t>(exit.lane.value) != of || exit.position != position) continue;
      raise_counter(host, item.program->exit_counters[static_cast<std::size_t>(exit.kind)], item.run + 1);
    }
  }

  void raise_counter(std::size_t host, std::int32_t index, std::uint64_t value) {
    hosts_[host].counters[static_cast<std::size_t>(index)] = value;
    time_.raised(now_, host, counter_key | index);
    touched_.push_back(host);
  }

  // Asks the hooks about an op; whether it may begin now.
  bool ask(double now, std::uint32_t h, std::uint32_t l, SimLane& lane, const Op& op) {
    lane.asked = true;
    lane.since = now;
    if (options_.host.hook) {
      std::optional<std::string> refusal;
      const auto thrown = thrown_by([&] { refusal = options_.host.hook(point(lane, op)); });
      if (thrown) return fail_at(lane, Errc::operation, hook_threw(place(lane), op, *thrown));
      if (refusal) {
        return fail_at(lane, Errc::operation, text({"tide::SimFabric: ", place(lane), " failed: ", *refusal}));
      }
    }
    double later = jitter();
    if (options_.delay) {
      Duration delay{0};
      const auto thrown = thrown_by([&] { delay = options_.delay(point(lane, op)); });
      if (thrown) return fail_at(lane, Errc::operation, hook_threw(place(lane), op, *thrown));
      lane.stopped = delay == Duration::max();
      if (lane.stopped) return false;
      later += seconds_of(delay);
    }
    if (later <= 0) return true;
    time_.wake(now + later, h, l);
    return false;
  }

  // Fails at an op; false.
  bool fail_at(const SimLane& lane, Errc code, std::string text) {
    failure_.set(code, noted(std::move(text), *lane.items.front().program->whose));
    return false;
  }

  [[nodiscard]] static std::string place(const SimLane& lane) {
    const SimItem& item = lane.items.front();
    return place_text(item.program->label, lane.variant(), lane.seq(), item.run);
  }

  [[nodiscard]] static bool crosses_nodes(const SimLane& lane, const Op& op) {
    const MeshShape mesh = costs(lane).collective.layout.mesh;
    return op.raises() && mesh.node(Rank{op.peer}) != mesh.node(lane.items.front().program->rank());
  }
  // Whether the network takes what an op sends.
  [[nodiscard]] bool has_room_for(const Host& host, const SimLane& lane, const Op& op) const {
    const index_t queue = options_.host.network_queue;
    return queue == 0 || !options_.host.network_hook || host.on_their_way < queue || !crosses_nodes(lane, op);
  }

  // A put or a signal that is over on its lane at `end`.
  void send(double end, std::uint32_t h, SimLane& lane, const Op& op) {
    const SimItem& item = lane.items.front();
    const Op::Raise raise = op.raise();
    const bool puts = op.kind == OpKind::put && moves_bytes();
    SimLanding landing{(*item.program->peers)[static_cast<std::size_t>(op.peer)],
                       static_cast<std::int32_t>(raise.word),
                       -1,
                       epoch(options_.host.first_run + item.run, raise.per_run, raise.value),
                       h,
                       -1};
    const bool crosses = crosses_nodes(lane, op);
    const double later = crosses ? jitter() : 0;
    if (!crosses || (!options_.host.network_hook && later == 0)) {
      // The source is read, and the target written, at any time between the issue and the word.
      if (puts) item.program->ops.run(op, lane.run());
      return time_.land(end, landing);
    }
    HostDelivery delivery;
    if (options_.host.network_hook) {
      const auto thrown = thrown_by([&] { delivery = options_.host.network_hook(point(lane, op)); });
      if (thrown) return static_cast<void>(fail_at(lane, Errc::operation, hook_threw(place(lane), op, *thrown)));
    }
    Host& host = hosts_[h];
    landing.wire = wire_of(host, item.program, op);
    Wire& wire = host.wires[static_cast<std::size_t>(landing.wire)];
    wire.cut = wire.cut || delivery.dropped;
    if (wire.cut) return;
    const index_t depth = options_.host.network_depth;
    if (options_.host.network_hook && op.kind == OpKind::put && depth > 0 && wire.on_its_way >= depth) {
      fail_at(lane, Errc::capacity, network_is_full(depth, place(lane), op));
      return;
    }
    ++wire.on_its_way;
    ++host.on_their_way;
    if (puts) landing.parcel = keep(item.program->ops.pack(op, lane.run()));
    if (delivery.unsignalled) landing.program = nullptr;
    // Behind what is on the wire.
    wire.last = std::max(end + seconds_of(delivery.delay) + later, std::nextafter(wire.last, never));
    time_.land(wire.last, landing);
  }

  [[nodiscard]] static std::int32_t wire_of(Host& host, const SimProgram* program, const Op& op) {
    for (std::size_t w = 0; w < host.wires.size(); ++w) {
      const Wire& wire = host.wires[w];
      if (wire.program == program && wire.lane == op.lane && wire.to == op.peer) return static_cast<std::int32_t>(w);
    }
    host.wires.push_back({program, op.lane, op.peer});
    return static_cast<std::int32_t>(host.wires.size()) - 1;
  }

  [[nodiscard]] std::int32_t keep(HostOps::Parcel parcel) {
    if (free_parcels_.empty()) {
      free_parcels_.push_back(static_cast<std::int32_t>(parcels_.size()));
      parcels_.emplace_back();
    }
    const std::int32_t place = free_parcels_.back();
    free_parcels_.pop_back();
    parcels_[static_cast<std::size_t>(place)] = std::move(parcel);
    return place;
  }

  const SimOptions options_;
  Failure& failure_;
  std::vector<Host> hosts_;
  VirtualTime<SimMachine, SimLanding> time_;
  std::vector<std::pair<std::size_t, std::size_t>> fresh_;  // host and lane
  std::vector<std::size_t> touched_;
  std::vector<HostOps::Parcel> parcels_;  // on their way
  std::vector<std::int32_t> free_parcels_;
  Tally tally_;
  std::uint64_t jitters_ = 0;  // drawn so far
  double now_ = 0;
};

}  // namespace tide::detail
