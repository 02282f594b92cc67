// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/rendezvous.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/inter_transport.hpp"
#include "support/raised.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rendezvous_test {

using namespace tide;
using tide_test::Planned;

// Many chunks and few puts in flight, so that every handshake is needed; and one of each.
using Tight = SendRecvDoublingTransport<tide::Bytes<48>, PutsInFlight<2>>;
using Whole = SendRecvDoublingTransport<>;
using All = std::vector<std::vector<Rendezvous>>;

bool crosses(const MeshShape& mesh, std::size_t rank, const Op& op) {
  return op.raises() && mesh.node(Rank{op.peer}) != mesh.node(Rank{static_cast<index_t>(rank)});
}

// The phase that each op comes before, by its rules alone, tried until all of them hold: an op comes behind the one
// before it; a wait behind what raises its word, a phase later where that is on another node; and behind a put whatever
// its lane does next, a phase later, unless that is sent in the phase, too.
std::vector<std::vector<index_t>> earliest_phases(const Planned& planned) {
  const MeshShape mesh = planned.collective.layout.mesh;
  std::vector<std::vector<index_t>> phases;
  for (const Plan& plan : planned.plans) phases.emplace_back(plan.ops.size(), 0);
  struct Raise {
    std::size_t rank, op;
    index_t value;
  };
  std::map<std::pair<std::int32_t, index_t>, std::vector<Raise>> raises;  // by the word's owner, and the word
  for (std::size_t r = 0; r < planned.plans.size(); ++r) {
    for (std::size_t i = 0; i < planned.plans[r].ops.size(); ++i) {
      const Op& op = planned.plans[r].ops[i];
      if (op.raises()) raises[{op.peer, op.raise().word}].push_back({r, i, op.raise().value});
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < planned.plans.size(); ++r) {
      const std::vector<Op>& ops = planned.plans[r].ops;
      std::map<int, index_t> put_over;  // by lane
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Op& op = ops[i];
        index_t phase = i > 0 ? phases[r][i - 1] : 0;
        if (!crosses(mesh, r, op)) phase = std::max(phase, put_over[op.lane]);
        if (op.kind == OpKind::wait && op.value() > 0) {
          index_t first = INT64_MAX;
          for (const Raise& raise : raises[{static_cast<std::int32_t>(r), op.word()}]) {
            const index_t later = crosses(mesh, raise.rank, planned.plans[raise.rank].ops[raise.op]) ? 1 : 0;
            if (raise.value >= op.value()) first = std::min(first, phases[raise.rank][raise.op] + later);
          }
          phase = std::max(phase, first);
        }
        if (op.kind == OpKind::put) put_over[op.lane] = phase + 1;
        changed = changed || phase != phases[r][i];
        phases[r][i] = phase;
      }
    }
  }
  return phases;
}

// What a rank tells and is told in each phase, in the order of the phases.
void check_laws(const Planned& planned) {
  CAPTURE(planned.collective.layout.mesh.nodes);
  CAPTURE(planned.collective.layout.mesh.ranks_per_node);
  const MeshShape mesh = planned.collective.layout.mesh;
  REQUIRE(tide_test::first_violation(planned) == "");
  const All all = rendezvous(planned.collective, planned.plans);
  const auto phases = earliest_phases(planned);
  REQUIRE(all.size() == planned.plans.size());
  // What each pair of ranks sends and receives in each phase, in order: bytes, the word and its value.
  struct Parcel {
    index_t bytes, word, value, per_run, target;
    [[nodiscard]] bool operator==(const Parcel&) const = default;
  };
  using Key = std::tuple<index_t, std::int32_t, std::int32_t>;  // phase, from, to
  std::map<Key, std::vector<Parcel>> sent;
  std::map<Key, std::vector<Parcel>> received;
  for (std::size_t r = 0; r < all.size(); ++r) {
    CAPTURE(r);
    const std::vector<Op>& ops = planned.plans[r].ops;
    const auto self = static_cast<std::int32_t>(r);
    std::vector<std::size_t> sends;
    index_t last = -1;
    for (const Rendezvous& each : all[r]) {
      CHECK(each.phase > last);
      last = each.phase;
      CHECK((!each.sends.empty() || !each.receives.empty()));
      const auto behind = std::upper_bound(phases[r].begin(), phases[r].end(), each.phase) - phases[r].begin();
      CHECK(static_cast<index_t>(each.position) == behind);
      for (const Rendezvous::Send& send : each.sends) {
        const Op& op = ops[send.op];
        sends.push_back(send.op);
        CHECK(send.op < each.position);
        CHECK(phases[r][send.op] == each.phase);
        CHECK(send.peer == op.peer);
        CHECK(send.bytes == (op.kind == OpKind::put ? op.width : 0));
        const Op::Raise raise = op.raise();
        sent[{each.phase, self, send.peer}].push_back(
            {send.bytes, raise.word, raise.value, raise.per_run, op.kind == OpKind::put ? op.target_offset : 0});
      }
      for (const Rendezvous::Receive& receive : each.receives) {
        const Op::Raise raise = receive.raise;
        received[{each.phase, receive.peer, self}].push_back(
            {receive.bytes, raise.word, raise.value, raise.per_run, receive.offset});
        // Whoever waits for it does so behind the phase.
        for (std::size_t i = 0; i < each.position; ++i) {
          CHECK_FALSE((ops[i].kind == OpKind::wait && ops[i].word() == raise.word && ops[i].value() >= raise.value));
        }
      }
    }
    std::vector<std::size_t> expected;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (crosses(mesh, r, ops[i])) expected.push_back(i);
    }
    CHECK(sends == expected);
  }
  CHECK(sent == received);
}

// What two variants have to have in common where ranks may run either: all but where in the plan it happens.
All without_positions(All all) {
  for (std::vector<Rendezvous>& of_rank : all) {
    for (Rendezvous& each : of_rank) {
      each.position = 0;
      for (Rendezvous::Send& send : each.sends) send.op = 0;
    }
  }
  return all;
}

// In which phase each rank tells and awaits what, of the own node, too.
std::vector<std::vector<std::vector<index_t>>> handshakes(const Planned& planned) {
  const auto phases = earliest_phases(planned);
  std::vector<std::vector<std::vector<index_t>>> all;
  for (std::size_t r = 0; r < planned.plans.size(); ++r) {
    auto& of_rank = all.emplace_back();
    for (std::size_t i = 0; i < planned.plans[r].ops.size(); ++i) {
      const Op& op = planned.plans[r].ops[i];
      if (op.raises() && op.peer != static_cast<std::int32_t>(r)) {
        of_rank.push_back({phases[r][i], 0, op.peer, op.raise().word, op.raise().value});
      }
      if (op.kind == OpKind::wait && planned.collective.words().kind(op.word()) != WordKind::event) {
        of_rank.push_back({phases[r][i], 1, op.word(), op.value()});
      }
    }
    std::sort(of_rank.begin(), of_rank.end());
  }
  return all;
}

void check_variants(const std::vector<Planned>& variants) {
  const All first = without_positions(rendezvous(variants.front().collective, variants.front().plans));
  const auto shakes = handshakes(variants.front());
  for (const Planned& other : variants) {
    CHECK(without_positions(rendezvous(other.collective, other.plans)) == first);
    CHECK(handshakes(other) == shakes);
  }
}

constexpr MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {3, 3}, {4, 2}};

template <class Inter, class Intra>
void check_gathers() {
  for (const GroupView& group : {tide_test::awkward_group.view(), tide_test::odd_group.view(),
                                 tide_test::empty_group.view(), tide_test::single_row.view()}) {
    for (const MeshShape mesh : meshes) {
      std::vector<Planned> variants;
      for (const OwnBlock own : {Intra::own_block, OwnBlock::in_place, OwnBlock::cast}) {
        variants.push_back(tide_test::planned_gather_on<Intra, Inter>(group, mesh, own));
        check_laws(variants.back());
      }
      check_variants(variants);
    }
  }
}

TEST_CASE("Rendezvous: keeps its laws for gathers, in many small chunks and in one, from every source") {
  check_gathers<Tight, UnicastTransport>();
  check_gathers<Whole, MulticastTransport>();
}

template <class Inbox>
void check_reduces(Exchange exchange) {
  for (const MeshShape mesh : meshes) {
    std::vector<Planned> variants;
    for (const GradientSource source : {GradientSource::storage, GradientSource::table}) {
      variants.push_back(
          tide_test::planned_reduce<Inbox>(tide_test::odd_group.view(), mesh, exchange, Finish::store, source));
      check_laws(variants.back());
    }
    check_variants(variants);
  }
}

TEST_CASE("Rendezvous: keeps them for reduces, doubling and direct, through rings and slots") {
  for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
    CAPTURE(name(exchange));
    check_reduces<Ring<Chunks<3>, tide::Bytes<16384>>>(exchange);
    check_reduces<SlotReuse>(exchange);
  }
}

TEST_CASE("Rendezvous: keeps them where sums cross in bf16, and where a switch adds them") {
  for (const MeshShape mesh : meshes) {
    check_laws(tide_test::planned_reduce(tide_test::odd_group.view(), mesh, Exchange::doubling, Finish::store,
                                         GradientSource::storage, Element::bf16));
    check_laws(tide_test::planned_switch_reduce(tide_test::odd_group.view(), mesh));
  }
}

TEST_CASE("Rendezvous: on one node there is nothing to hand over") {
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    const Planned planned = tide_test::planned_gather(tide_test::odd_group.view(), ranks);
    for (const auto& of_rank : rendezvous(planned.collective, planned.plans)) CHECK(of_rank.empty());
  }
}

TEST_CASE("Rendezvous: a gather in one chunk takes a phase for each round, and one in which ranks say they are ready") {
  for (const MeshShape mesh : meshes) {
    const Planned planned =
        tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::awkward_group.view(), mesh);
    std::size_t rounds = 0;
    while ((index_t{1} << rounds) < mesh.nodes) ++rounds;
    for (const auto& of_rank : rendezvous(planned.collective, planned.plans)) CHECK(of_rank.size() == rounds + 1);
  }
}

TEST_CASE("Rendezvous: refuses plans in which a rank waits for ever, by rank and op") {
  Planned planned = tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::odd_group.view(), {2, 1});
  std::vector<Op>& ops = planned.plans[1].ops;
  const auto is_put = [](const Op& op) { return op.kind == OpKind::put; };
  ops.erase(std::find_if(ops.begin(), ops.end(), is_put));
  const std::vector<Op>& waiting = planned.plans[0].ops;
  const index_t arrived = planned.collective.words().word(WordKind::arrived, 1);
  const auto waits = [&](const Op& op) { return op.kind == OpKind::wait && op.word() == arrived; };
  const auto stuck = std::find_if(waiting.begin(), waiting.end(), waits) - waiting.begin();
  CHECK(tide_test::text_of([&] { static_cast<void>(rendezvous(planned.collective, planned.plans)); }) ==
        "tide::Rendezvous: plans must make progress with the lanes of each rank merged into one; rank 0 does not get "
        "over op " +
            std::to_string(stuck) + ". verify says more.");
}

}  // namespace rendezvous_test
