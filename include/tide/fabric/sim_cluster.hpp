// SPDX-License-Identifier: Apache-2.0
//
// SimCluster: all ranks of a mesh in one process, in virtual time, each with a SimFabric.
//
//   tide::SimCluster cluster{{2, 4}, {.machine = tide::machines::h200_node(), .seed = 7}};
//   cluster.run([](tide::SimFabric& fabric) { /* the program of one rank */ });
//   cluster.now();                                        // seconds of the machine
//
// Programs are threads that take turns. One thread may also drive all ranks: it constructs what each needs, calls
// `init` of the cluster, calls each rank, and waits.
//
// Test: tests/fabric/sim_fabric.test.cpp

#pragma once

#include <tide/fabric/detail/run_threads.hpp>  // run_threads
#include <tide/fabric/sim_fabric.hpp>          // SimFabric

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tide {

/// Ranks on a machine that is played. Several clusters may live in one process; they share nothing. Destroying one
/// drops work that nobody waited for: `close` and `synchronize` wait.
class SimCluster {
 public:
  /// @throws Error (Errc::layout) when the mesh has no rank
  explicit SimCluster(MeshShape mesh, const SimOptions& options = {}) {
    const Mesh<dynamic, dynamic> checked(mesh.nodes, mesh.ranks_per_node);
    auto turns = std::make_shared<detail::SimTurns>(options, static_cast<std::size_t>(checked.shape().ranks()));
    state_ = std::make_shared<detail::SimState>(checked.shape(), std::move(turns), 0, 1);
    for (index_t r = 0; r < mesh.ranks(); ++r) fabrics_.push_back(std::make_unique<SimFabric>(state_, Rank{r}));
  }
  SimCluster(SimCluster&&) noexcept = default;
  SimCluster& operator=(SimCluster&&) = delete;

  [[nodiscard]] MeshShape mesh() const noexcept { return state_->mesh; }
  /// Seconds of virtual time since the cluster was made.
  [[nodiscard]] double now() const noexcept { return state_->machine().now(); }
  /// What all launches cost so far.
  [[nodiscard]] const Tally& tally() const noexcept { return state_->machine().tally(); }

  /// The attachment of one rank; lives as long as the cluster.
  [[nodiscard]] SimFabric& fabric(Rank rank) { return *fabrics_[static_cast<std::size_t>(rank.value)]; }

  /// Runs `program(fabric)` for each rank, each on a thread of its own, one at a time, and waits for all.
  /// What a rank throws fails the cluster, so that no other waits for it; what was thrown first is thrown again here.
  template <class F>
  void run(const F& program) {
    detail::SimTurns& turns = *state_->turns;
    turns.open();
    detail::run_threads(
        fabrics_.size(),
        [&](std::size_t i) {
          turns.enter(i);
          program(*fabrics_[i]);
          state_->end(Rank{static_cast<index_t>(i)}, false);
          turns.leave();
        },
        [&](std::size_t i, const char* what) {
          turns.fail(Errc::operation, detail::text({"tide::SimCluster: rank ", i, " threw: ", what}));
          turns.leave();
        },
        [&](std::size_t started) { turns.start(started); });
    turns.close();
    state_->resume();
  }

  /// Initializes the fabrics of all ranks, for one thread that drives them.
  /// @throws Error as `SimFabric::init`
  void init() {
    for (const auto& fabric : fabrics_) fabric->life_.require_new();
    fabrics_.front()->init_all();
    state_->turns->failure.raise_if_failed();
  }

 private:
  std::shared_ptr<detail::SimState> state_;
  std::vector<std::unique_ptr<SimFabric>> fabrics_;
};

}  // namespace tide
