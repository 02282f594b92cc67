// SPDX-License-Identifier: Apache-2.0
//
// Interpreter: runs the plans of all ranks over real bytes in one thread, in an order that a seed chooses among all
// that lanes and signals allow. It asks nothing of the library but what an op's fields mean.
//
//   tide_test::PlanOracle oracle(collective, tide_test::Interpreter::runs, seed);
//   CHECK(tide_test::Interpreter(collective, plans, oracle).run({seed}) == "");
//
// Whatever can come badly does: memory is poisoned before the first run and guarded on both sides; moves are cut into
// slices between which others run; the caller overwrites its inputs the moment that an exit fires, and reads results
// twice, at an exit and when it lets go of them, a slot with all that lies beside it to another gather, which
// overwrites it. What a run of a reduce stores is kept beside the memory, so that the store of the next run cannot hide
// a wrong one. What goes to another node comes late: it is read when it is issued, and written, with its word behind
// it, whenever the schedule says, in order only where one lane sends to one rank. One of the schedules has one queue
// for each rank.

#pragma once

#include <tide/plan/plan.hpp>

#include "support/plan_oracle.hpp"
#include "support/seeds.hpp"
#include "support/sums.hpp"
#include "support/values.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tide_test {

/// How the next step is chosen among those that are possible. `number` is a seed, or a rank.
struct Schedule {
  enum class Kind {
    random,
    newest,
    oldest,
    lowest_rank,
    highest_rank,
    freeze_rank,
    freeze_lane,
    stay,
    merged,
    late_puts
  };

  std::uint64_t number = 0;
  Kind kind = Kind::random;
  std::int32_t lane = 0;  ///< of `freeze_lane`
};

/// The `i`-th of a list of schedules that begins with adversaries and goes on with seeds, each second one of which
/// freezes a lane: of `rank`, where one is named.
inline Schedule schedule(std::uint64_t i, std::span<const tide::Plan> plans, std::int64_t rank = -1) {
  using Kind = Schedule::Kind;
  constexpr std::array kinds = {Kind::merged,       Kind::newest, Kind::oldest,   Kind::lowest_rank,
                                Kind::highest_rank, Kind::stay,   Kind::late_puts};
  if (i < kinds.size()) return {i, kinds[i]};
  const std::uint64_t before = kinds.size() + std::min<std::uint64_t>(plans.size(), 4);
  if (i < before) return {i - kinds.size(), Kind::freeze_rank};
  if ((i - before) % 2 == 1) return {i, Kind::random};
  const std::uint64_t n = (i - before) / 2;
  const std::uint64_t frozen = rank >= 0 ? static_cast<std::uint64_t>(rank) : n % plans.size();
  const std::uint64_t turn = rank >= 0 ? n : n / plans.size();
  // The caller's lane, which the other lanes of the rank wait for, comes last.
  return {frozen, Kind::freeze_lane, static_cast<std::int32_t>((turn + 1) % plans[frozen].lanes.size())};
}

class Interpreter {
 public:
  /// Consecutive runs with changing data.
  static constexpr index_t runs = 2;

  Interpreter(const tide::Collective& collective, std::span<const tide::Plan> plans, const PlanOracle& oracle)
      : collective_(collective), plans_(plans), oracle_(oracle) {
    const CollectiveOracle layout(collective.layout);
    for (std::size_t p = 0; p < collective.layout.group.parameters.size() && !gather(); ++p) {
      table_starts_.push_back(layout.gradient_start(p));
      table_ends_.push_back(layout.gradient_end(p));
    }
  }

  /// Runs everything; says what went wrong, or nothing.
  std::string run(Schedule schedule) {
    start();
    Random random(schedule.number + 1);
    std::size_t last = 0;
    for (std::uint64_t step = 1;; ++step) {
      std::vector<std::size_t> able;
      for (std::size_t a = 0; a < actors_.size(); ++a) {
        const bool now = can_step(actors_[a], schedule.kind == Schedule::Kind::merged);
        if (now && actors_[a].since == 0) actors_[a].since = step;
        if (!now) actors_[a].since = 0;
        if (now) able.push_back(a);
      }
      if (able.empty()) break;
      last = choose(able, schedule, random, last);
      actors_[last].since = step;
      if (!problem_.empty()) return problem_;
      do_step(actors_[last], random);
    }
    for (const Actor& actor : actors_) {
      if (actor.run < actor.runs)
        return "deadlock: rank " + std::to_string(actor.rank) + ", " + name(actor) + " is stuck";
    }
    check_guards();
    return problem_;
  }

 private:
  static constexpr std::size_t guard = 64;

  /// A memory between guards.
  struct Guarded {
    std::vector<std::byte> all;

    explicit Guarded(index_t size = 0) : all(static_cast<std::size_t>(size) + 2 * guard, poison) {}
    [[nodiscard]] std::byte* at(index_t offset) { return all.data() + guard + offset; }
    void zero() { std::fill(all.begin() + guard, all.end() - guard, std::byte{0}); }
    void scribble() { std::fill(all.begin() + guard, all.end() - guard, std::byte{0x3C}); }
    [[nodiscard]] bool intact() const {
      const auto good = [](std::byte b) { return b == poison; };
      return std::all_of(all.begin(), all.begin() + guard, good) && std::all_of(all.end() - guard, all.end(), good);
    }
  };

  struct RankMemory {
    std::array<std::vector<Guarded>, tide::space_count> spaces;
    std::vector<Guarded> table;  // gradients behind pointers of their own
    std::vector<Bytes> stored;   // of each run but the last: what it has written to the output
    std::vector<index_t> words;
  };

  /// What is on its way to another node.
  struct Message {
    const tide::Op* op;
    index_t run;
    Bytes bytes{};
  };

  /// Somebody who does one thing after the other: a lane, the caller, the reader of a reduce's output, a wire, the
  /// keeper of a slot that is an inbox: before each run he overwrites it, as gathers do.
  struct Actor {
    enum class Kind { lane, caller, reader, keeper, wire };

    Kind kind = Kind::lane;
    std::size_t rank = 0;
    std::int32_t lane = 0;
    std::vector<std::size_t> ops{};  // of a lane: positions in the plan
    index_t runs = 0;
    index_t run = 0;
    std::size_t at = 0;       // the next op of the run; of the caller: 0 fills, 1 sees the exit, 2 lets go
    index_t done = 0;         // bytes of the op at `at` that are done
    bool backwards = false;   // whether the op at `at` goes from its last row to its first
    std::uint64_t since = 0;  // the step since which it could go on; 0 where it cannot
    std::int32_t peer = 0;    // of a wire
    std::deque<Message> sent{};
  };

  void start() {
    problem_.clear();
    ranks_.clear();
    actors_.clear();
    reading_.clear();
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      RankMemory memory;
      for (std::size_t s = 0; s < memory.spaces.size(); ++s) {
        const auto space = static_cast<tide::Space>(s);
        const index_t bytes = collective_.space_bytes(space, tide::Rank{static_cast<index_t>(r)});
        memory.spaces[s].assign(static_cast<std::size_t>(collective_.space_instances(space)), Guarded(bytes));
        for (Guarded& one : memory.spaces[s]) {
          if (space == tide::Space::network_inbox && collective_.network.starts_as_zeros()) one.zero();
        }
      }
      if (collective_.gradients == tide::GradientSource::table) {
        for (std::size_t p = 0; p < table_starts_.size(); ++p)
          memory.table.emplace_back(table_ends_[p] - table_starts_[p]);
      }
      if (!gather()) {
        memory.stored.assign(static_cast<std::size_t>(runs - 1),
                             Bytes(oracle_.output(static_cast<index_t>(r), 0).size(), poison));
      }
      memory.words.assign(static_cast<std::size_t>(collective_.words().count()), 0);
      ranks_.push_back(memory);
      for (std::size_t l = 0; l < plans_[r].lanes.size(); ++l) {
        Actor lane{Actor::Kind::lane, r, static_cast<std::int32_t>(l)};
        for (std::size_t s = 0; s < plans_[r].ops.size(); ++s) {
          if (plans_[r].ops[s].lane == l) lane.ops.push_back(s);
        }
        lane.runs = lane.ops.empty() ? 0 : runs;
        actors_.push_back(lane);
      }
      for (const tide::Op& op : plans_[r].ops) {
        if (crosses(r, op) && wire_of(r, op) == nullptr) {
          Actor wire{Actor::Kind::wire, r, op.lane};
          wire.peer = op.peer;
          actors_.push_back(wire);
        }
      }
      actors_.push_back({Actor::Kind::caller, r, 0, {}, runs});
      if (!gather()) actors_.push_back({Actor::Kind::reader, r, 0, {}, runs});
      if (keeps_slots()) actors_.push_back({Actor::Kind::keeper, r, 0, {}, runs});
    }
  }

  [[nodiscard]] bool crosses(std::size_t rank, const tide::Op& op) const {
    const tide::MeshShape mesh = collective_.layout.mesh;
    return op.raises() && mesh.node(tide::Rank{op.peer}) != mesh.node(tide::Rank{static_cast<index_t>(rank)});
  }

  [[nodiscard]] Actor* wire_of(std::size_t rank, const tide::Op& op) {
    for (Actor& actor : actors_) {
      if (actor.kind == Actor::Kind::wire && actor.rank == rank && actor.lane == op.lane && actor.peer == op.peer)
        return &actor;
    }
    return nullptr;
  }

  // ---- who may go on
  // -------------------------------------------------------------------------------------------------

  [[nodiscard]] bool can_step(const Actor& actor, bool merged) const {
    if (actor.kind == Actor::Kind::wire) return !actor.sent.empty();
    if (actor.run == actor.runs) return false;
    switch (actor.kind) {
      case Actor::Kind::reader:
        return fired(actor.rank, tide::ExitKind::shards_ready, actor.run);
      case Actor::Kind::keeper:
        return actor.run == 0 || fired(actor.rank, tide::ExitKind::shards_ready, actor.run - 1);
      case Actor::Kind::caller:
        return actor.at != 1 ||
               fired(actor.rank, gather() ? tide::ExitKind::complete : tide::ExitKind::gradients_free, actor.run);
      case Actor::Kind::lane:
      case Actor::Kind::wire:
        break;
    }
    // The caller enqueues a run when it has filled the inputs.
    if (actor.lane == 0 && !filled(actor.rank, actor.run)) return false;
    const tide::Op& op = plans_[actor.rank].ops[actor.ops[actor.at]];
    if (merged && !is_next(actor)) return false;
    if (op.kind != tide::OpKind::wait) return true;
    return ranks_[actor.rank].words[static_cast<std::size_t>(op.word())] >= actor.run * op.per_run() + op.value();
  }

  /// Whether an actor's op is the first of its rank, in issue order, that is not done.
  [[nodiscard]] bool is_next(const Actor& actor) const {
    for (const Actor& other : actors_) {
      if (other.kind != Actor::Kind::lane || other.rank != actor.rank || other.run == other.runs) continue;
      if (other.run < actor.run || (other.run == actor.run && other.ops[other.at] < actor.ops[actor.at])) return false;
    }
    return true;
  }

  [[nodiscard]] bool filled(std::size_t rank, index_t run) const {
    bool all = true;
    for (const Actor& actor : actors_) {
      if (actor.rank != rank) continue;
      if (actor.kind == Actor::Kind::caller) all = all && (actor.run > run || (actor.run == run && actor.at > 0));
      if (actor.kind == Actor::Kind::keeper) all = all && actor.run > run;
    }
    return all;
  }

  [[nodiscard]] bool fired(std::size_t rank, tide::ExitKind kind, index_t run) const {
    for (const tide::Exit& exit : plans_[rank].exits) {
      if (exit.kind != kind) continue;
      for (const Actor& actor : actors_) {
        if (actor.kind != Actor::Kind::lane || actor.rank != rank || actor.lane != exit.lane.value) continue;
        if (exit.lane.value == 0 && exit.position == 0 && !filled(rank, run)) return false;
        return actor.runs == 0 || actor.run > run ||
               (actor.run == run && static_cast<std::int32_t>(actor.at) >= exit.position);
      }
    }
    return false;
  }

  [[nodiscard]] std::size_t choose(const std::vector<std::size_t>& able, Schedule schedule, Random& random,
                                   std::size_t last) const {
    const auto any = [&](const auto& list) {
      return list[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(list.size()) - 1))];
    };
    const auto newer = [&](std::size_t a, std::size_t b) { return actors_[a].since < actors_[b].since; };
    switch (schedule.kind) {
      case Schedule::Kind::newest:
        return *std::max_element(able.begin(), able.end(), newer);
      case Schedule::Kind::oldest:
        return *std::min_element(able.begin(), able.end(), newer);
      case Schedule::Kind::lowest_rank:
        return able.front();
      case Schedule::Kind::highest_rank:
        return able.back();
      case Schedule::Kind::stay:
        if (std::find(able.begin(), able.end(), last) != able.end()) return last;
        break;
      case Schedule::Kind::late_puts:
      case Schedule::Kind::freeze_rank:
      case Schedule::Kind::freeze_lane: {
        std::vector<std::size_t> others;
        for (const std::size_t a : able) {
          if (!held(actors_[a], schedule)) others.push_back(a);
        }
        if (!others.empty()) return any(others);
        break;
      }
      case Schedule::Kind::random:
      case Schedule::Kind::merged:
        break;
    }
    return any(able);
  }

  /// Whether an actor goes on only where nobody else can.
  [[nodiscard]] static bool held(const Actor& actor, Schedule schedule) {
    if (schedule.kind == Schedule::Kind::late_puts) {
      return actor.kind == Actor::Kind::wire && !actor.sent.front().bytes.empty();
    }
    if (actor.rank != schedule.number) return false;
    return schedule.kind == Schedule::Kind::freeze_rank ||
           (actor.kind == Actor::Kind::lane && actor.lane == schedule.lane);
  }

  // ---- what they do
  // --------------------------------------------------------------------------------------------------

  void do_step(Actor& actor, Random& random) {
    if (actor.kind == Actor::Kind::reader) {
      const Bytes& output = oracle_.output(static_cast<index_t>(actor.rank), actor.run);
      if (actor.run + 1 == runs) {
        compare(actor, tide::Space::output, memory(actor.rank, tide::Space::output).at(0), output);
      } else {
        compare(actor, tide::Space::output, stored(actor.rank, actor.run).data(), output);
      }
      ++actor.run;
    } else if (actor.kind == Actor::Kind::keeper) {
      for (Guarded& chunk : ranks_[actor.rank].spaces[static_cast<std::size_t>(tide::Space::inbox)]) chunk.scribble();
      ++actor.run;
    } else if (actor.kind == Actor::Kind::caller) {
      do_caller_step(actor);
    } else if (actor.kind == Actor::Kind::wire) {
      do_wire_step(actor, random);
    } else if (do_slice(actor, plans_[actor.rank].ops[actor.ops[actor.at]], random)) {
      actor.done = 0;
      if (++actor.at == actor.ops.size()) {
        actor.at = 0;
        ++actor.run;
      }
    }
  }

  void do_caller_step(Actor& actor) {
    if (actor.at == 0) {
      fill(actor.rank, actor.run);
      if (actor.run == 0 && !gather()) {
        const Bytes& bytes = oracle_.first_output(static_cast<index_t>(actor.rank));
        std::copy(bytes.begin(), bytes.end(), memory(actor.rank, tide::Space::output).at(0));
      }
    } else if (gather()) {
      compare(actor, tide::Space::slot, memory(actor.rank, tide::Space::slot).at(0), oracle_.slot(actor.run));
    }
    if (actor.at == 2 && gather()) give_slot_away(actor.rank);
    if (actor.at == 1 && !gather()) ++actor.at;  // nothing to hold on to
    if (++actor.at < 3) return;
    actor.at = 0;
    if (++actor.run == actor.runs) fill(actor.rank, -1);
  }

  /// Another gather has the slot, and what lies beside it.
  void give_slot_away(std::size_t rank) {
    Guarded& slot = memory(rank, tide::Space::slot);
    const tide::LayoutView& layout = collective_.layout;
    layout.for_each_piece(tide::Rank{0}, [&](const tide::Piece& piece) {
      const index_t bytes = layout.group[piece.parameter].shape.elements() * piece.size(tide::Buffer::slot);
      std::fill_n(slot.at(piece.start[static_cast<std::size_t>(tide::Buffer::slot)]), bytes, std::byte{0x3C});
    });
    std::vector<tide::Space> beside{tide::Space::network_inbox};
    if (!collective_.gives_shards()) beside.push_back(tide::Space::shards);
    for (const tide::Space space : beside) {
      for (Guarded& one : ranks_[rank].spaces[static_cast<std::size_t>(space)]) one.scribble();
    }
  }

  /// Some bytes of what was sent first, or its word behind them.
  void do_wire_step(Actor& actor, Random& random) {
    const Message& message = actor.sent.front();
    const auto size = static_cast<index_t>(message.bytes.size());
    if (actor.done < size) {
      const index_t left = size - actor.done;
      const index_t count = random.once_in(3) ? left : random.between(1, left);
      std::memcpy(
          address(static_cast<std::size_t>(actor.peer), message.op->target, message.op->target_offset + actor.done),
          message.bytes.data() + actor.done, static_cast<std::size_t>(count));
      actor.done += count;
      return;
    }
    raise(actor.rank, *message.op, message.run);
    actor.done = 0;
    actor.sent.pop_front();
  }

  void raise(std::size_t rank, const tide::Op& op, index_t run) {
    const tide::Op::Raise raise = op.raise();
    index_t& word = ranks_[static_cast<std::size_t>(op.peer)].words[static_cast<std::size_t>(raise.word)];
    const index_t value = run * raise.per_run + raise.value;
    if (value <= word) problem_ = "rank " + std::to_string(rank) + " sets a word back to " + std::to_string(value);
    word = value;
  }

  /// Writes a run's inputs; of run -1: scribbles over them.
  void fill(std::size_t rank, index_t run) {
    const Bytes& bytes = oracle_.input(static_cast<index_t>(rank), std::max<index_t>(run, 0));
    Guarded& input = memory(rank, oracle_.input_space());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!oracle_.fills(static_cast<index_t>(rank), i)) continue;
      *input.at(static_cast<index_t>(i)) = run < 0 ? std::byte{0x3C} : bytes[i];
    }
    for (std::size_t p = 0; p < ranks_[rank].table.size(); ++p) {
      Guarded& own = ranks_[rank].table[p];
      std::copy_n(input.at(table_starts_[p]), own.all.size() - 2 * guard, own.at(0));
    }
  }

  void compare(const Actor& actor, tide::Space space, const std::byte* found, const Bytes& bytes) {
    for (std::size_t i = 0; i < bytes.size() && problem_.empty(); ++i) {
      if (found[i] == bytes[i]) continue;
      problem_ = "rank " + std::to_string(actor.rank) + ", run " + std::to_string(actor.run) + ": " +
                 std::string(tide::name(space)) + " byte " + std::to_string(i) + " is wrong";
    }
  }

  /// Executes a part of an op, or all of it; returns whether it is done.
  bool do_slice(Actor& actor, const tide::Op& op, Random& random) {
    if (op.kind == tide::OpKind::wait) return true;
    if (op.kind == tide::OpKind::signal) {
      if (!crosses(actor.rank, op))
        raise(actor.rank, op, actor.run);
      else
        wire_of(actor.rank, op)->sent.push_back({&op, actor.run});
      return true;
    }
    if (op.kind == tide::OpKind::put) {
      if (actor.done == 0) reading_[&actor].clear();
      const index_t count = random.once_in(2) ? op.width - actor.done : random.between(1, op.width - actor.done);
      const std::byte* source = address(actor.rank, op.source, op.source_offset + actor.done);
      reading_[&actor].insert(reading_[&actor].end(), source, source + count);
      actor.done += count;
      if (actor.done == op.width) wire_of(actor.rank, op)->sent.push_back({&op, actor.run, reading_[&actor]});
      return actor.done == op.width;
    }
    const bool typed = op.kind == tide::OpKind::reduce || op.kind == tide::OpKind::cast;
    const index_t unit = typed ? static_cast<index_t>(tide::size_bytes(kernel(op).input)) : 1;
    if (actor.done == 0) actor.backwards = random.once_in(3);
    index_t left = op.bytes() - actor.done;
    if (!random.once_in(3)) {  // a row, or a few elements of it
      const index_t in_row = op.width - actor.done % op.width;
      left = random.once_in(2) ? in_row : std::min(in_row, unit * random.between(1, 5));
    }
    for (const index_t end = actor.done + left; actor.done < end;) {
      const index_t count = std::min(end - actor.done, op.width - actor.done % op.width);
      const index_t row = actor.done / op.width;
      move(actor, op, actor.backwards ? static_cast<index_t>(op.rows) - 1 - row : row, actor.done % op.width, count);
      actor.done += count;
    }
    return actor.done == op.bytes();
  }

  /// `count` bytes of a row, from its byte `from` on.
  void move(const Actor& actor, const tide::Op& op, index_t row, index_t from, index_t count) {
    const std::size_t rank = actor.rank;
    const std::byte* source = address(rank, op.source, op.source_offset + row * index_t{op.source_pitch} + from);
    const index_t target = op.target_offset + row * index_t{op.target_pitch};
    switch (op.kind) {
      case tide::OpKind::copy:
        std::memmove(address(static_cast<std::size_t>(op.peer), op.target, target + from), source,
                     static_cast<std::size_t>(count));
        break;
      case tide::OpKind::multicast:
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
          const tide::MeshShape mesh = collective_.layout.mesh;
          const auto node = [&](std::size_t of) { return mesh.node(tide::Rank{static_cast<index_t>(of)}); };
          if (node(r) != node(rank)) continue;
          std::memmove(address(r, op.target, target + from), source, static_cast<std::size_t>(count));
        }
        break;
      case tide::OpKind::cast: {
        const auto size = static_cast<index_t>(tide::size_bytes(kernel(op).output));
        for (index_t i = 0; i < count / 4; ++i) {
          store(address(rank, op.target, target + (from / 4 + i) * size), kernel(op).output,
                load(source + 4 * i, Element::f32));
        }
        break;
      }
      case tide::OpKind::reduce:
        sum(actor, op, row, from, count, source, target);
        break;
      default:
        problem_ = "an op that cannot be executed";
    }
  }

  void sum(const Actor& actor, const tide::Op& op, index_t row, index_t from, index_t count, const std::byte* source,
           index_t target) {
    const std::size_t rank = actor.rank;
    const tide::Kernel& kernel = this->kernel(op);
    const auto size = static_cast<index_t>(tide::size_bytes(kernel.input));
    const auto made = static_cast<index_t>(tide::size_bytes(kernel.output));
    const bool local = op.extra.space == tide::Space::inbox;
    const index_t distance = local ? collective_.inbox.piece_bytes() : collective_.network.piece_bytes;
    const index_t spacing = local ? collective_.inbox.element_bytes : size;
    for (index_t i = 0; i < count / size; ++i) {
      std::vector<float> leaves;
      const index_t piece = op.extra_offset + row * (op.target_pitch / made) * spacing + from + i * size;
      for (index_t k = 0; k + 1 < kernel.inputs; ++k) {
        leaves.push_back(load(address(rank, op.extra, piece + k * distance), kernel.input));
      }
      leaves.insert(leaves.begin() + op.peer, load(source + i * size, kernel.input));
      if (kernel.kind == tide::Kernel::Kind::switch_sum) {
        leaves = {};
        const index_t first = op.source_offset + row * index_t{op.source_pitch} + from + i * size;
        for (index_t k = 0; k < kernel.inputs; ++k) {
          leaves.push_back(k == 0 ? sum_of_node(rank, op.source, first)
                                  : sum_of_node(rank, op.extra, piece + (k - 1) * distance));
        }
      }
      const index_t place = target + (from / size + i) * made;
      std::byte* output = address(rank, op.target, place);
      const float scale = kernel.finish == tide::Finish::partial ? 1.0F : PlanOracle::scale;
      const float total = rounded(scale * tree(leaves));
      const bool add = kernel.finish == tide::Finish::accumulate;
      store(output, kernel.output, add ? rounded(load(output, Element::f32) + total) : total);
      const auto end = static_cast<std::size_t>(place + made);
      if (op.target.space == tide::Space::output && actor.run + 1 < runs && end <= stored(rank, actor.run).size()) {
        std::copy_n(output, made, stored(rank, actor.run).begin() + place);
      }
    }
  }

  /// What a switch makes of the floats at one place of all ranks of a node.
  float sum_of_node(std::size_t rank, tide::Place place, index_t offset) {
    const tide::MeshShape mesh = collective_.layout.mesh;
    float sum = 0;
    for (index_t local = 0; local < mesh.ranks_per_node; ++local) {
      const tide::Rank of = mesh.rank(mesh.node(tide::Rank{static_cast<index_t>(rank)}), local);
      sum = rounded(sum + load(address(static_cast<std::size_t>(of.value), place, offset), Element::f32));
    }
    return sum;
  }

  // ---- memory
  // --------------------------------------------------------------------------------------------------------

  [[nodiscard]] Guarded& memory(std::size_t rank, tide::Space space) {
    return ranks_[rank].spaces[static_cast<std::size_t>(space)][0];
  }

  [[nodiscard]] Bytes& stored(std::size_t rank, index_t run) {
    return ranks_[rank].stored[static_cast<std::size_t>(run)];
  }

  [[nodiscard]] std::byte* address(std::size_t rank, tide::Place place, index_t offset) {
    if (place.space == tide::Space::gradients && collective_.gradients == tide::GradientSource::table) {
      return ranks_[rank].table[place.parameter].at(offset - table_starts_[place.parameter]);
    }
    return ranks_[rank].spaces[static_cast<std::size_t>(place.space)][place.instance].at(offset);
  }

  void check_guards() {
    for (std::size_t r = 0; r < ranks_.size() && problem_.empty(); ++r) {
      for (std::size_t s = 0; s < ranks_[r].spaces.size(); ++s) {
        for (const Guarded& memory : ranks_[r].spaces[s]) {
          if (!memory.intact()) {
            problem_ = "rank " + std::to_string(r) + ": bytes beside " +
                       std::string(tide::name(static_cast<tide::Space>(s))) + " were written";
          }
        }
      }
    }
  }

  [[nodiscard]] bool keeps_slots() const { return !gather() && collective_.inbox.place == tide::InboxPlace::slot; }
  [[nodiscard]] bool gather() const { return collective_.operation == tide::Operation::gather; }
  [[nodiscard]] const tide::Kernel& kernel(const tide::Op& op) const { return collective_.kernels[op.kernel]; }
  [[nodiscard]] std::string name(const Actor& actor) const {
    if (actor.kind == Actor::Kind::caller) return "the caller";
    if (actor.kind == Actor::Kind::reader) return "the reader";
    if (actor.kind == Actor::Kind::keeper) return "the keeper of the slot";
    if (actor.kind == Actor::Kind::wire) return "the wire to rank " + std::to_string(actor.peer);
    return plans_[actor.rank].lanes[static_cast<std::size_t>(actor.lane)].name() + ", op " +
           std::to_string(actor.ops[actor.at]);
  }

  const tide::Collective& collective_;
  std::span<const tide::Plan> plans_;
  const PlanOracle& oracle_;
  std::vector<index_t> table_starts_;  // of each gradient in static storage
  std::vector<index_t> table_ends_;
  std::vector<RankMemory> ranks_;
  std::vector<Actor> actors_;
  std::map<const Actor*, Bytes> reading_;  // what a lane has read of its put
  std::string problem_;
};

/// The first of `schedules` schedules that goes wrong, and how; nothing where all give the oracle's bytes.
inline std::string run_schedules(const tide::Collective& collective, std::span<const tide::Plan> plans,
                                 std::uint64_t schedules, std::uint64_t seed = 1) {
  const PlanOracle oracle(collective, Interpreter::runs, seed);
  Interpreter interpreter(collective, plans, oracle);
  for (std::uint64_t i = 0; i < schedules; ++i) {
    const std::string problem = interpreter.run(schedule(i, plans));
    if (!problem.empty()) return "schedule " + std::to_string(i) + ": " + problem;
  }
  return "";
}

}  // namespace tide_test
