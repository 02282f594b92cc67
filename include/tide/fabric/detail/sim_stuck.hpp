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
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

struct SimCause {
  std::string text;     // part of a sentence
  std::string ended{};  // the whole sentence, where it is that a program has ended without a call
};

class SimStuck {
 public:
  explicit SimStuck(const SimMachine& machine) : machine_(machine) {}

  // Why `host` waits, or, where none of its ops does, any other.
  [[nodiscard]] SimCause cause_of(std::size_t host) {
    std::optional<Place> at = first_wait(host, host + 1);
    if (!at) at = first_wait(0, machine_.hosts());
    if (at) return follow(*at);
    for (std::size_t h = 0; h < machine_.hosts(); ++h) {
      for (const SimLane& lane : machine_.lanes(h)) {
        if (lane.stopped) return {stops_before(lane)};
      }
    }
    return {"no op waits: a function on a stream, or an op, takes longer"};
  }

 private:
  struct Place {
    std::size_t host;
    std::size_t lane;

    [[nodiscard]] friend bool operator==(const Place&, const Place&) = default;
  };
  // The op that raises a word far enough, and in which run of its rank.
  struct Raiser {
    SimProgram* program = nullptr;
    std::int64_t run = 0;
    index_t seq = 0;
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

  [[nodiscard]] SimCause follow(Place at) {
    const SimLane& lane = lane_at(at);
    const SimItem& item = lane.items.front();
    const Op& op = lane.op();
    const MeshShape mesh = item.program->costs.front().collective.layout.mesh;
    const std::string wait =
        wait_text(place_of(lane), mesh, lane.variant(), op, item.program->words[static_cast<std::size_t>(op.word())],
                  machine_.expected(item, op));
    visited_.push_back(at);
    const Raiser raiser = raiser_of(item, op);
    if (raiser.program == nullptr) return {wait + "; no plan raises it"};
    const SimProgram& other = *raiser.program;
    const index_t rank = other.rank().value;
    if (static_cast<std::int64_t>(other.next_run) <= raiser.run) {
      SimCause cause{text({wait, "; rank ", rank, " has not made that call"})};
      if (other.life->ended) cause.ended = programs_end_apart(other.rank(), other.life->closed, wait);
      return cause;
    }
    const std::optional<Place> next = place_of(raiser);
    if (!next) return {text({wait, "; rank ", rank, " has sent it, and it does not come"})};
    if (std::find(visited_.begin(), visited_.end(), *next) != visited_.end()) {
      return {wait + "; and what would raise it waits for that"};
    }
    if (waits(*next)) return follow(*next);
    const SimLane& busy = lane_at(*next);
    if (!runs_ops(busy)) return {text({wait, "; something on a stream of rank ", rank, " comes before"})};
    if (busy.stopped) return {wait + "; " + stops_before(busy)};
    const bool queued = machine_.awaits(next->host, next->lane);
    return {text({wait, "; ", place_of(busy), queued ? " waits for the network, which is full" : " is not over"})};
  }

  // @param op  a wait of the item
  [[nodiscard]] static Raiser raiser_of(const SimItem& item, const Op& op) {
    const std::int64_t wanted = static_cast<std::int64_t>(item.run) * op.per_run() + op.value();
    Raiser first;
    for (SimProgram* other : *item.program->peers) {
      const Plan& plan = other->variants.front().plan;  // variants signal alike
      for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
        const Op& candidate = plan.ops[seq];
        if (!candidate.raises() || candidate.peer != item.program->rank().value) continue;
        const Op::Raise raise = candidate.raise();
        if (raise.word != op.word() || raise.per_run != op.per_run()) continue;
        const std::int64_t run =
            std::max<std::int64_t>(0, ceil_div(std::max<std::int64_t>(0, wanted - raise.value), raise.per_run));
        if (first.program != nullptr && run >= first.run) continue;
        first = {other, run, static_cast<index_t>(seq)};
      }
    }
    return first;
  }

  // Where the op is that has not been begun yet.
  [[nodiscard]] std::optional<Place> place_of(const Raiser& raiser) const {
    const SimProgram& program = *raiser.program;
    const std::size_t host = program.host(program.rank());
    const std::uint16_t lane_of_plan = program.variants.front().plan.ops[static_cast<std::size_t>(raiser.seq)].lane;
    for (std::size_t l = 0; l < machine_.lanes(host).size(); ++l) {
      const SimLane& lane = machine_.lanes(host)[l];
      for (std::size_t i = 0; i < lane.items.size(); ++i) {
        const SimItem& item = lane.items[i];
        if (item.kind != SimItem::Kind::ops || item.program != raiser.program) continue;
        if (item.run != static_cast<std::uint64_t>(raiser.run)) continue;
        if (item.lane != SimItem::all_lanes && item.lane != lane_of_plan) continue;
        const bool done =
            i == 0 && (!lane.has_op() || lane.seq() > raiser.seq || (lane.in_op && lane.seq() == raiser.seq));
        if (done) return std::nullopt;
        return Place{host, l};
      }
    }
    return std::nullopt;
  }

  const SimMachine& machine_;
  std::vector<Place> visited_;
};

}  // namespace tide::detail
