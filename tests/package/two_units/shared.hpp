// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../consumer.hpp"

/// Both units instantiate the same pipelines and run them on one fabric.
bool use_in_first(consumer::Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream);
bool use_in_second(consumer::Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream);
