// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a SimCluster share: arenas, the ledger of calls, where all must come to; and the machine they run
// on, which several clusters share where ranks have several fabrics.

#pragma once

#include <tide/fabric/detail/agreement.hpp>    // Declared
#include <tide/fabric/detail/arenas.hpp>       // Arenas
#include <tide/fabric/detail/call_ledger.hpp>  // CallLedger
#include <tide/fabric/detail/sim_turns.hpp>    // SimTurns

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide {

class SimFabric;

namespace detail {

struct SimRank {
  Declared declared{};
  SimLife life{};
  bool present = false;  // where all must come to
  SimFabric* fabric = nullptr;
};

class SimState {
 public:
  // @param first, stride  host of rank 0, and from rank to rank
  // @param ranks_are      see `noted`
  SimState(MeshShape shape, std::shared_ptr<SimTurns> shared, index_t first, index_t stride, std::string ranks_are)
      : mesh(shape),
        turns(std::move(shared)),
        ranks(static_cast<std::size_t>(shape.ranks())),
        arenas(shape.ranks()),
        ledger(shape.ranks()),
        first_host(first),
        host_stride(stride),
        whose(std::move(ranks_are)) {}
  SimState(const SimState&) = delete;
  SimState& operator=(const SimState&) = delete;

  [[nodiscard]] SimRank& at(Rank rank) noexcept { return ranks[static_cast<std::size_t>(rank.value)]; }
  [[nodiscard]] SimMachine& machine() const noexcept { return turns->machine; }
  [[nodiscard]] const HostOptions& options() const noexcept { return machine().options().host; }
  [[nodiscard]] std::size_t host(Rank rank) const noexcept {
    return static_cast<std::size_t>(first_host + rank.value * host_stride);
  }

  // Compares what the ranks have declared, makes the arenas, and lets programs find each other.
  void compare();

  // Collective over the ranks: `last` runs once, when all have come.
  template <class Last>
  void meet(Rank rank, const char* what, const Last& last) {
    if (turns->failure.failed()) return;
    at(rank).present = true;
    if (++present_ == mesh.ranks()) {
      last();
      present_ = 0;
      for (SimRank& other : ranks) other.present = false;
      ++generation_;
      return turns->look();
    }
    const auto met = [&, generation = generation_] { return generation_ != generation; };
    turns->wait(host(rank), met, [&] { return absence(what); });
  }

  // A rank's program has ended, or its fabric is closed.
  void end(Rank rank, bool closed) {
    at(rank).life.ended = true;
    at(rank).life.closed = at(rank).life.closed || closed;
  }
  // All programs have ended: others may follow.
  void resume() {
    for (SimRank& rank : ranks) rank.life.ended = rank.life.closed;
  }

  const MeshShape mesh;
  const std::shared_ptr<SimTurns> turns;
  std::vector<SimRank> ranks;
  Arenas arenas;
  CallLedger ledger;
  const index_t first_host;
  const index_t host_stride;
  const std::string whose;
  std::vector<std::vector<SimProgram*>> programs;  // by number, by rank; from init on

 private:
  // Who has not come, in words.
  [[nodiscard]] SimWait absence(const char* what) const {
    std::string absent;
    std::string stuck;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].present) continue;
      absent += (absent.empty() ? "" : ", ") + std::to_string(r);
      if (!ranks[r].life.ended || !stuck.empty()) continue;
      stuck = noted(
          programs_end_apart(Rank{static_cast<index_t>(r)}, ranks[r].life.closed, text({what, " needs all ranks"})),
          whose);
    }
    return {text({what, " of all ranks, and these have not come: ", absent}), stuck,
            noted(absent_text(what, mesh.ranks(), options().deadline, absent), whose), whose};
  }

  index_t present_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace detail
}  // namespace tide
