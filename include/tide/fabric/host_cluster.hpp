// SPDX-License-Identifier: Apache-2.0
//
// HostCluster: all ranks of a mesh in one process, each with a HostFabric.
//
//   tide::HostCluster cluster{{1, 4}};
//   cluster.run([](tide::HostFabric& fabric) { /* the program of one rank */ });
//
// Test: tests/fabric/host_cluster.test.cpp

#pragma once

#include <tide/fabric/detail/process_port.hpp>  // place_of
#include <tide/fabric/detail/run_threads.hpp>   // run_threads
#include <tide/fabric/host_fabric.hpp>          // HostFabric

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tide {

/// Ranks as threads. Several clusters may live in one process; they share nothing. Destroying one drops work that
/// nobody waited for: `close` and `synchronize` wait.
class HostCluster {
 public:
  /// @throws Error (Errc::layout) when the mesh has no rank
  explicit HostCluster(MeshShape mesh, HostOptions options = {})
      : HostCluster(mesh, std::move(options), std::make_shared<detail::HostKin>(), {}) {}

  HostCluster(HostCluster&&) noexcept = default;
  HostCluster& operator=(HostCluster&&) = delete;
  ~HostCluster() {
    // What waits for a rank that will not come ends now instead of at its deadline.
    if (state_ != nullptr) state_->fail(Errc::order, "tide::HostCluster: a cluster was destroyed.");
  }

  [[nodiscard]] MeshShape mesh() const noexcept { return state_->mesh; }

  /// The attachment of one rank; lives as long as the cluster.
  /// @throws Error (Errc::argument) when the mesh has no such rank
  [[nodiscard]] HostFabric& fabric(Rank rank) { return *fabrics_[detail::place_of(rank, mesh().ranks())]; }

  /// Runs `program(fabric)` for each rank, each on a thread of its own, and waits for all.
  /// What a rank throws fails the cluster, so that no other waits for it; what was thrown first is thrown again here.
  /// So does a wait for a call that another rank's program has ended without. Work that was enqueued goes on.
  template <class F>
  void run(const F& program) {
    detail::run_threads(
        fabrics_.size(),
        [&](std::size_t i) {
          program(*fabrics_[i]);
          state_->end(Rank{static_cast<index_t>(i)}, false);
        },
        [](std::size_t i) {
          return detail::text({"rank ", i});
        },
        [&](std::size_t i, const char* what) {
          state_->fail(Errc::operation, detail::text({"tide::HostCluster: rank ", i, " threw: ", what}));
        },
        [](std::size_t) {});
    state_->resume();
  }

 private:
  friend class HostReplicas;

  // @param whose  see detail::noted
  HostCluster(MeshShape mesh, HostOptions options, std::shared_ptr<detail::HostKin> kin, std::string whose) {
    const Mesh<dynamic, dynamic> checked(mesh.nodes, mesh.ranks_per_node);
    state_ = std::make_shared<detail::HostState>(checked.shape(), std::move(options), std::move(kin), std::move(whose));
    for (index_t r = 0; r < mesh.ranks(); ++r) fabrics_.push_back(std::make_unique<HostFabric>(state_, Rank{r}));
  }

  std::shared_ptr<detail::HostState> state_;
  std::vector<std::unique_ptr<HostFabric>> fabrics_;
};

}  // namespace tide
