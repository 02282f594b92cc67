// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 240
// ranks: 2 3
//
// A rank that does not come where ranks meet: NCCL would wait for it without end, and the others get a named error.

#include <tide/fabric/cuda_communicators.cuh>
#include <tide/fabric/cuda_fabric.cuh>

#include "support/cuda_process.cuh"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

namespace {

using namespace tide_test;
using std::chrono::steady_clock;
using tide::CudaCommunicators;

// What a call raised, and after how long.
struct Raised {
  std::string text{};
  std::optional<tide::Errc> code{};
  steady_clock::duration took{};
};

template <class Call>
[[nodiscard]] Raised raised(const Call& call) {
  Raised found;
  const auto begun = steady_clock::now();
  try {
    call();
  } catch (const tide::Error& error) {
    found.text = error.what();
    found.code = error.code();
  }
  found.took = steady_clock::now() - begun;
  return found;
}

[[nodiscard]] std::string free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
  REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  close(listener);
  return "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
}

// Where nobody has waited in vain yet, for all ranks.
void choose_place() {
  const bool chooses = CudaProcess::rank() == 0;
  const std::string place = CudaProcess::everybody(chooses ? free_port() : "").front();
  REQUIRE(setenv("NCCL_COMM_ID", place.c_str(), 1) == 0);
}

void skip_unless_they_fit() {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  CudaProcess::skip_unless_ranks_fit(devices);
}

// Initializes a fabric and closes it.
void meet_in_a_fabric(const CudaCommunicators& all) {
  tide::CudaFabric fabric(all);
  fabric.init();
  fabric.close();
}

TEST_CASE("CudaCommunicators: a rank that does not come is an error on the others, who can meet elsewhere") {
  skip_unless_they_fit();
  const index_t n = CudaProcess::world();
  for (const index_t absent : {index_t{0}, n - 1}) {
    CAPTURE(absent);
    choose_place();
    if (CudaProcess::rank() != absent) {
      const Raised late = raised([] { static_cast<void>(CudaCommunicators::from_environment(3s)); });
      CAPTURE(late.text);
      CHECK(late.code == tide::Errc::deadline);
      CHECK(late.text == "tide::CudaCommunicators: the deadline of 3.000 s passed: rank " +
                             std::to_string(CudaProcess::rank()) + " waited for all " + std::to_string(n) +
                             " ranks to come to " + std::getenv("NCCL_COMM_ID") + ".");
      CHECK(late.took >= 3s);
      CHECK(late.took < 8s);
    }
    static_cast<void>(CudaProcess::everybody(""));
  }
  choose_place();
  meet_in_a_fabric(CudaCommunicators::from_environment());
}

TEST_CASE("CudaCommunicators: a rank that does not split is an error on the others, and on it when it does") {
  skip_unless_they_fit();
  const index_t n = CudaProcess::world();
  choose_place();
  const CudaCommunicators all = CudaCommunicators::from_environment();
  const auto split = [&all] { static_cast<void>(all.split(0, static_cast<int>(CudaProcess::rank()), 3s)); };
  Raised late;
  const bool is_absent = CudaProcess::rank() == n - 1;
  if (!is_absent) late = raised(split);
  static_cast<void>(CudaProcess::everybody(""));
  if (is_absent) late = raised(split);
  CAPTURE(late.text);
  CHECK(late.took < 8s);
  REQUIRE(late.code.has_value());
  if (is_absent) return;
  CHECK(late.code == tide::Errc::deadline);
  CHECK(late.text == "tide::CudaCommunicators: the deadline of 3.000 s passed: rank " +
                         std::to_string(CudaProcess::rank()) + " waited for all ranks to split their communicators.");
}

TEST_CASE("CudaFabric: a rank that does not come to init is an error on the others, and on it when it comes") {
  skip_unless_they_fit();
  const index_t n = CudaProcess::world();
  choose_place();
  const CudaCommunicators all = CudaCommunicators::from_environment();
  const auto init = [&all] {
    tide::CudaFabric fabric(all, {.deadline = 1s});
    fabric.init();
  };
  Raised late;
  const bool is_absent = CudaProcess::rank() == n - 1;
  if (!is_absent) late = raised(init);
  static_cast<void>(CudaProcess::everybody(""));
  if (is_absent) late = raised(init);
  CAPTURE(late.text);
  CHECK(late.took < 30s);
  REQUIRE(late.code.has_value());
  if (is_absent) return;
  CHECK(raised(init).text.find("communicators that a failed fabric has given up") != std::string::npos);
  CHECK(late.code == tide::Errc::deadline);
  CHECK(late.text == "tide::CudaFabric: the deadline of 20.000 s passed: rank " + std::to_string(CudaProcess::rank()) +
                         " waited for all ranks to come to init.");
}

}  // namespace
