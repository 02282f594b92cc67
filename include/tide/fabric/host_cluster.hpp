// SPDX-License-Identifier: Apache-2.0
//
// HostCluster: all ranks of a mesh in one process, each with a HostFabric.
//
//   tide::HostCluster cluster{{1, 4}};
//   cluster.run([](tide::HostFabric& fabric) { /* the program of one rank */ });
//
// Test: tests/fabric/host_cluster.test.cpp

#pragma once

#include <tide/fabric/host_fabric.hpp>  // HostFabric

#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace tide {

/// Ranks as threads. Several clusters may live in one process; they share nothing.
class HostCluster {
 public:
  /// @throws Error (Errc::layout) when the mesh has no rank
  explicit HostCluster(MeshShape mesh, HostOptions options = {}) {
    const Mesh<dynamic, dynamic> checked(mesh.nodes, mesh.ranks_per_node);
    state_ = std::make_shared<detail::HostState>(checked.shape(), std::move(options));
    for (index_t r = 0; r < mesh.ranks(); ++r) fabrics_.push_back(std::make_unique<HostFabric>(state_, Rank{r}));
  }

  [[nodiscard]] MeshShape mesh() const noexcept { return state_->mesh; }

  /// The attachment of one rank; lives as long as the cluster.
  [[nodiscard]] HostFabric& fabric(Rank rank) { return *fabrics_[static_cast<std::size_t>(rank.value)]; }

  /// Runs `program(fabric)` for each rank, each on a thread of its own, and waits for all.
  /// What a rank throws fails the cluster, so that no other waits for it; the first failure is thrown again here.
  template <class F>
  void run(const F& program) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> thrown(fabrics_.size());
    threads.reserve(fabrics_.size());
    for (std::size_t r = 0; r < fabrics_.size(); ++r) {
      threads.emplace_back([&, r] { guarded(program, r, thrown[r]); });
    }
    for (std::thread& thread : threads) thread.join();
#if TIDE_HAS_EXCEPTIONS
    for (const std::exception_ptr& exception : thrown) {
      if (exception) std::rethrow_exception(exception);
    }
#endif
  }

 private:
  template <class F>
  void guarded(const F& program, std::size_t rank, std::exception_ptr& thrown) {
#if TIDE_HAS_EXCEPTIONS
    try {
      program(*fabrics_[rank]);
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      state_->fail(Errc::operation,
                   detail::text({"tide::HostCluster: rank ", rank, " ended with an error: ", error.what()}));
    } catch (...) {
      thrown = std::current_exception();
      state_->fail(Errc::operation, detail::text({"tide::HostCluster: rank ", rank, " ended with an error."}));
    }
#else
    static_cast<void>(thrown);
    program(*fabrics_[rank]);
#endif
  }

  std::shared_ptr<detail::HostState> state_;
  std::vector<std::unique_ptr<HostFabric>> fabrics_;
};

}  // namespace tide
