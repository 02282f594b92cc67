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

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tide {

/// Ranks as threads. Several clusters may live in one process; they share nothing. Destroying one drops work that
/// nobody waited for: `close` and `synchronize` wait.
class HostCluster {
 public:
  /// @throws Error (Errc::layout) when the mesh has no rank
  explicit HostCluster(MeshShape mesh, HostOptions options = {}) {
    const Mesh<dynamic, dynamic> checked(mesh.nodes, mesh.ranks_per_node);
    state_ = std::make_shared<detail::HostState>(checked.shape(), std::move(options));
    for (index_t r = 0; r < mesh.ranks(); ++r) fabrics_.push_back(std::make_unique<HostFabric>(state_, Rank{r}));
  }

  HostCluster(HostCluster&&) noexcept = default;
  HostCluster& operator=(HostCluster&&) = delete;
  ~HostCluster() {
    // What waits for a rank that will not come ends now instead of at its deadline.
    if (state_ != nullptr) state_->fail(Errc::order, "tide::HostCluster: a cluster was destroyed.");
  }

  [[nodiscard]] MeshShape mesh() const noexcept { return state_->mesh; }

  /// The attachment of one rank; lives as long as the cluster.
  [[nodiscard]] HostFabric& fabric(Rank rank) { return *fabrics_[static_cast<std::size_t>(rank.value)]; }

  /// Runs `program(fabric)` for each rank, each on a thread of its own, and waits for all.
  /// What a rank throws fails the cluster, so that no other waits for it; what was thrown first is thrown again here.
  template <class F>
  void run(const F& program) {
    std::vector<std::thread> threads;
    First first;
    threads.reserve(fabrics_.size());
    for (const std::unique_ptr<HostFabric>& fabric : fabrics_) {
      threads.emplace_back([&, rank = fabric.get()] { guarded(program, *rank, first); });
    }
    for (std::thread& thread : threads) thread.join();
#if TIDE_HAS_EXCEPTIONS
    if (first.thrown) std::rethrow_exception(first.thrown);
#endif
  }

 private:
  struct First {
    std::atomic_flag taken{};
    std::exception_ptr thrown{};  // written by who took the flag, read when all threads have ended
  };

  template <class F>
  void guarded(const F& program, HostFabric& fabric, First& first) {
#if TIDE_HAS_EXCEPTIONS
    const auto threw = [&](const std::string& what) {
      if (!first.taken.test_and_set()) first.thrown = std::current_exception();
      state_->fail(Errc::operation, detail::text({"tide::HostCluster: rank ", fabric.rank().value, " threw: ", what}));
    };
    try {
      program(fabric);
    } catch (const std::exception& error) {
      threw(error.what());
    } catch (...) {
      threw("something that is no std::exception.");
    }
#else
    static_cast<void>(first);
    program(fabric);
#endif
  }

  std::shared_ptr<detail::HostState> state_;
  std::vector<std::unique_ptr<HostFabric>> fabrics_;
};

}  // namespace tide
