// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"

using namespace tide_test;

TEST_CASE("HostFabric: init refuses ranks that differ, with one error for all") {
  fabric_suite::symmetric(HostRanks{});
}

TEST_CASE("HostFabric: a rank that does not come to init in time is named") {
  fabric_suite::late_for_init(HostRanks{});
}

TEST_CASE("HostFabric: work and events complete in launch order") { fabric_suite::in_order(HostRanks{}); }

TEST_CASE("HostFabric: runs of one pipeline stay in order over two streams") {
  fabric_suite::one_pipeline_on_two_streams(HostRanks{});
}

TEST_CASE("HostFabric: a rank that never enqueues is named by all, and every further call repeats the error") {
  fabric_suite::absent_from_a_call(HostRanks{});
}

TEST_CASE("HostFabric: a function on a stream that takes longer than the deadline fails all ranks") {
  fabric_suite::slow_stream(HostRanks{});
}

TEST_CASE("HostFabric: close waits, may be repeated, and ends the calls") { fabric_suite::closing(HostRanks{}); }

TEST_CASE("HostFabric: before init there is no memory and no call") { fabric_suite::before_init(HostRanks{}); }
