// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/plan/machine.hpp>

namespace {

constexpr tide::Machine h200 = tide::machines::h200_node();
static_assert(h200.name == "h200_node");
static_assert(h200.link_rate == 391e9 && h200.nic_rate == 50e9 && h200.call_seconds == 2e-6);
static_assert(h200.shared_memory_rate == 0);  // every GPU has a memory of its own

// A copy reads and writes: a CPU that copies 10 GB/s moves 20 GB/s of traffic.
constexpr tide::Machine cpu = tide::machines::cpu(10e9);
static_assert(cpu.shared_memory_rate == 20e9);

TEST_CASE("Machine: half of a Llama-3.1-70B block takes 2.19 ms to push and 0.4 ms to copy on an H200, as measured") {
  constexpr double half = 855'654'400;
  CHECK(half / h200.link_rate == doctest::Approx(2.19e-3).epsilon(0.01));
  CHECK(2 * half / h200.copy_rate == doctest::Approx(0.41e-3).epsilon(0.05));
}

}  // namespace
