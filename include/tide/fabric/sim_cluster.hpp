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

#include <tide/fabric/detail/process_port.hpp>  // place_of
#include <tide/fabric/sim_fabric.hpp>           // SimFabric

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
  explicit SimCluster(MeshShape mesh, const SimOptions& options = {})
      : SimCluster(mesh, std::make_shared<detail::SimTurns>(options, checked(mesh), 0), 0, 1, {}) {}
  SimCluster(SimCluster&&) noexcept = default;
  SimCluster& operator=(SimCluster&&) = delete;

  [[nodiscard]] MeshShape mesh() const noexcept { return state_->mesh; }
  /// Seconds of virtual time since the cluster was made.
  [[nodiscard]] double now() const noexcept { return state_->machine().now(); }
  /// What all launches cost so far.
  [[nodiscard]] const Tally& tally() const noexcept { return state_->machine().tally(); }

  /// The attachment of one rank; lives as long as the cluster.
  /// @throws Error (Errc::argument) when the mesh has no such rank
  [[nodiscard]] SimFabric& fabric(Rank rank) { return *fabrics_[detail::place_of(rank, mesh().ranks())]; }

  /// Runs `program(fabric)` for each rank, each on a thread of its own, one at a time, and waits for all.
  /// What a rank throws fails the cluster, so that no other waits for it; what was thrown first is thrown again here.
  template <class F>
  void run(const F& program) {
    state_->turns->run(
        [&](std::size_t i) {
          program(*fabrics_[i]);
          state_->end(Rank{static_cast<index_t>(i)}, false);
        },
        [](const std::string& name, const char* what) {
          return detail::text({"tide::SimCluster: ", name, " threw: ", what});
        });
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
  friend class SimReplicas;

  // @param first, stride  host of rank 0, and from rank to rank
  // @param whose          see detail::noted
  SimCluster(MeshShape mesh, std::shared_ptr<detail::SimTurns> turns, index_t first, index_t stride, std::string whose)
      : state_(std::make_shared<detail::SimState>(mesh, std::move(turns), first, stride, std::move(whose))) {
    for (index_t r = 0; r < mesh.ranks(); ++r) fabrics_.push_back(std::make_unique<SimFabric>(state_, Rank{r}));
  }

  // How many hosts a mesh needs.
  [[nodiscard]] static std::size_t checked(MeshShape mesh) {
    return static_cast<std::size_t>(Mesh<dynamic, dynamic>(mesh.nodes, mesh.ranks_per_node).shape().ranks());
  }

  std::shared_ptr<detail::SimState> state_;
  std::vector<std::unique_ptr<SimFabric>> fabrics_;
};

}  // namespace tide
