// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

#include <atomic>

int main() {
  std::atomic<bool> right{true};
  tide::HostCluster cluster({1, 2});
  cluster.run([&](tide::HostFabric& fabric) {
    consumer::Rank rank(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (int step = 0; step < 3; ++step) {
      if (!use_in_first(rank, fabric, stream) || !use_in_second(rank, fabric, stream)) right = false;
    }
    fabric.close();
  });
  return right ? 0 : 1;
}
