// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

std::unique_ptr<consumer::Rank> make(tide::HostFabric& fabric) { return std::make_unique<consumer::Rank>(fabric); }
