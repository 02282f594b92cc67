// SPDX-License-Identifier: Apache-2.0
//
// Why a host of a SimCluster waits: from an op that waits to the op that would raise its word, and from there to what
// keeps that one, until something keeps it that is no op.

#pragma once

#include <tide/core/math.hpp>                  // ceil_div
#include <tide/fabric/detail/call_ledger.hpp>  // programs_end_apart
#include <tide/fabric/detail/sim_machine.hpp>  // SimMachine

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

struct SimCause {
  std::string text;     // part of a sentence
  std::string ended{};  // the whole sentence, where it is that a program has ended without a call
  std::string whose{};  // see `noted`
};

class SimStuck {
 public:
  explicit SimStuck(const SimMachine& machine) : machine_(machine) {}

  // Why `host` waits, or, where none of its ops does, any other. Nothing where no op waits.
  [[nodiscard]] SimCause cause_of(std::size_t host) const {
    std::optional<Place> at = first_wait(host, host + 1);
    if (!at) at = first_wait(0, machine_.hosts());
    if (at) return follow(*at);
    for (std::size_t h = 0; h < machine_.hosts(); ++h) {
      for (const SimLane& lane : machine_.lanes(h)) {
        if (lane.stopped) return {stops_before(lane), {}, *lane.items.front().program->whose};
      }
    }
    return {};
  }

 private:
  struct Place {
    std::size_t host;
    std::size_t lane;

    [[nodiscard]] friend bool operator==(const Place&, const Place&) = default;
  };
  // Who raises a word of a rank far enough, and in which run of its own.
  struct Raiser {
    SimProgram* program = nullptr;
    std::int64_t run = 0;
    std::int32_t peer = 0;
    Op::Raise raise{};

    [[nodiscard]] bool is(const Op& op) const { return op.raises() && op.peer == peer && op.raise() == raise; }
  };

  [[nodiscard]] const SimLane& lane_at(Place place) const { return machine_.lanes(place.host)[place.lane]; }
  [[nodiscard]] static bool runs_ops(const SimLane& lane) {
    return !lane.items.empty() && lane.items.front().kind == SimItem::Kind::ops && lane.has_op();
  }
  [[nodiscard]] bool waits(Place place) const {
    const SimLane& lane = lane_at(place);
    return runs_ops(lane) && lane.op().kind == OpKind::wait && machine_.awaits(place.host, place.lane);
  }
  [[nodiscard]] static std::string place_of(const SimLane& lane) {
    const SimItem& item = lane.items.front();
    return place_text(item.program->label, lane.variant(), lane.seq(), item.run);
  }
  [[nodiscard]] static std::string stops_before(const SimLane& lane) {
    return text({"rank ", lane.items.front().program->rank().value, " has stopped before ", place_of(lane)});
  }

  // The op that has waited longest.
  [[nodiscard]] std::optional<Place> first_wait(std::size_t begin, std::size_t end) const {
    std::optional<Place> first;
    for (std::size_t h = begin; h < end; ++h) {
      for (std::size_t l = 0; l < machine_.lanes(h).size(); ++l) {
        if (waits({h, l}) && (!first || lane_at({h, l}).since < lane_at(*first).since)) first = Place{h, l};
      }
    }
    return first;
  }

  // From an op that waits to what keeps the last op of the chain.
  [[nodiscard]] SimCause follow(Place at) const {
    std::vector<Place> visited;
    std::string wait;
    std::string whose;
    const auto because = [&](const std::string& why) { return SimCause{wait + why, {}, whose}; };
    for (;;) {
      if (std::find(visited.begin(), visited.end(), at) != visited.end()) {
        return because("; and what would raise it waits for that");
      }
      visited.push_back(at);
      const SimLane& lane = lane_at(at);
      std::optional<Place> next;
      if (waits(at)) {
        const SimItem& item = lane.items.front();
        const MeshShape mesh = item.program->costs.front().collective.layout.mesh;
        const Op& op = lane.op();
        wait = wait_text(place_of(lane), mesh, lane.variant(), op,
                         item.program->words[static_cast<std::size_t>(op.word())], machine_.expected(item, op));
        whose = *item.program->whose;
        const Raiser raiser = raiser_of(item, op);
        if (raiser.program == nullptr) return because("; no plan raises it");
        if (static_cast<std::int64_t>(raiser.program->next_run) <= raiser.run) return not_called(wait, *raiser.program);
        next = place_of(raiser);
        if (!next) {
          return because(text({"; rank ", raiser.program->rank().value, " has sent it, and it does not come"}));
        }
      } else if (!lane.items.empty() && lane.items.front().kind == SimItem::Kind::await) {
        next = place_of_counter(at.host, lane.items.front());
        if (!next) return because("; and a stream waits for an event that does not come");
      } else {
        return because("; " + kept(at));
      }
      at = *next;
    }
  }

  [[nodiscard]] static SimCause not_called(const std::string& wait, const SimProgram& other) {
    SimCause cause{text({wait, "; rank ", other.rank().value, " has not made that call"}), {}, *other.whose};
    if (other.life->ended)
      cause.ended = noted(programs_end_apart(other.rank(), other.life->closed, wait), *other.whose);
    return cause;
  }

  // What keeps a lane that waits for nothing of a lane.
  [[nodiscard]] std::string kept(Place at) const {
    const SimLane& lane = lane_at(at);
    if (!runs_ops(lane)) return "and a stream is busy with something else before";
    if (lane.stopped) return stops_before(lane);
    const bool queued = machine_.awaits(at.host, at.lane);
    return place_of(lane) + (queued ? " waits for the network, which is full" : " is not over");
  }

  // @param op  a wait of the item
  [[nodiscard]] static Raiser raiser_of(const SimItem& item, const Op& op) {
    const std::int64_t wanted = static_cast<std::int64_t>(item.run) * op.per_run() + op.value();
    Raiser first;
    for (SimProgram* other : *item.program->peers) {
      const Plan& plan = other->variants.front().plan;  // variants signal alike
      for (const Op& candidate : plan.ops) {
        if (!candidate.raises() || candidate.peer != item.program->rank().value) continue;
        const Op::Raise raise = candidate.raise();
        if (raise.word != op.word() || raise.per_run != op.per_run()) continue;
        const std::int64_t run =
            std::max<std::int64_t>(0, ceil_div(std::max<std::int64_t>(0, wanted - raise.value), raise.per_run));
        if (first.program != nullptr && run >= first.run) continue;
        first = {other, run, candidate.peer, raise};
      }
    }
    return first;
  }

  // The lane of the op that has not been begun yet.
  [[nodiscard]] std::optional<Place> place_of(const Raiser& raiser) const {
    const std::size_t host = raiser.program->host(raiser.program->rank());
    for (std::size_t l = 0; l < machine_.lanes(host).size(); ++l) {
      const SimLane& lane = machine_.lanes(host)[l];
      for (std::size_t i = 0; i < lane.items.size(); ++i) {
        const SimItem& item = lane.items[i];
        if (item.kind != SimItem::Kind::ops || item.program != raiser.program) continue;
        if (item.run != static_cast<std::uint64_t>(raiser.run)) continue;
        // What has been begun of the first item is over, or on its way.
        const std::vector<Op>& ops = item.program->run(item.run).variant->plan.ops;
        const bool begun = i == 0 && lane.has_op();
        const std::size_t first = i > 0   ? 0
                                  : begun ? static_cast<std::size_t>(lane.seq()) + (lane.in_op ? 1 : 0)
                                          : ops.size();
        for (std::size_t seq = first; seq < ops.size(); ++seq) {
          if (item.lane != SimItem::all_lanes && item.lane != ops[seq].lane) continue;
          if (raiser.is(ops[seq])) return Place{host, l};
        }
      }
    }
    return std::nullopt;
  }

  // The lane of the host that will raise a counter as far as an item awaits it.
  [[nodiscard]] std::optional<Place> place_of_counter(std::size_t host, const SimItem& awaits) const {
    const auto raises = [&](const SimItem& item) {
      if (item.kind == SimItem::Kind::raise) return item.counter == awaits.counter && item.value >= awaits.value;
      if (item.kind != SimItem::Kind::ops || item.run + 1 < awaits.value) return false;
      const Plan& plan = item.program->run(item.run).variant->plan;
      const auto is_of = [&](LaneIndex lane) {
        return item.lane == SimItem::all_lanes || static_cast<std::uint64_t>(lane.value) == item.lane;
      };
      if (item.program->caller_counter == awaits.counter) return is_of(LaneIndex{0});
      return std::any_of(plan.exits.begin(), plan.exits.end(), [&](const Exit& exit) {
        return item.program->exit_counters[static_cast<std::size_t>(exit.kind)] == awaits.counter && is_of(exit.lane);
      });
    };
    for (std::size_t l = 0; l < machine_.lanes(host).size(); ++l) {
      const std::deque<SimItem>& items = machine_.lanes(host)[l].items;
      if (std::any_of(items.begin(), items.end(), raises)) return Place{host, l};
    }
    return std::nullopt;
  }

  const SimMachine& machine_;
};

}  // namespace tide::detail
