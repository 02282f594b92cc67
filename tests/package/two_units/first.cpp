// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

bool use_in_first(consumer::Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream) {
  return consumer::gather_is_right(rank, fabric, stream);
}
