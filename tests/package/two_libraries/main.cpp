// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

#include <atomic>

int main() {
  std::atomic<bool> right{true};
  tide::HostCluster cluster({1, 2});
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = make(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    if (!use(*rank, fabric, stream) || !use(*rank, fabric, stream)) right = false;
    fabric.close();
  });
  return right ? 0 : 1;
}
