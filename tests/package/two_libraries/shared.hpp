// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../consumer.hpp"

#include <memory>

/// One library makes a rank's pipelines, the other runs the same types on the same fabric.
std::unique_ptr<consumer::Rank> make(tide::HostFabric& fabric);
bool use(consumer::Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream);
