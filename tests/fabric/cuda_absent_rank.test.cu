// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 240
// ranks: 2 3
//
// A rank that does not come where ranks meet: NCCL would wait for it without end, and the others get a named error.

#include <tide/fabric/cuda_communicators.cuh>
#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/cuda_replicas.cuh>

#include "support/cuda_process.cuh"
#include "support/raised.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace tide_test;
using std::chrono::steady_clock;
using tide::CudaCommunicators;

// What a call raised, and after how long.
struct TimedError {
  std::optional<tide::Error> error{};
  steady_clock::duration took{};

  [[nodiscard]] std::string text() const { return error ? error->what() : ""; }
  [[nodiscard]] bool is_late() const { return error && error->code() == tide::Errc::deadline; }
};

template <class Call>
[[nodiscard]] TimedError timed(const Call& call) {
  const auto begun = steady_clock::now();
  std::optional<tide::Error> error = raised(call);
  return {std::move(error), steady_clock::now() - begun};
}

[[nodiscard]] bool is_absent() { return CudaProcess::rank() == CudaProcess::world() - 1; }

// What `call` raised, which the last rank makes when the others have raised.
template <class Call>
[[nodiscard]] TimedError when_one_is_absent(const Call& call) {
  TimedError late;
  if (!is_absent()) late = timed(call);
  static_cast<void>(CudaProcess::everybody(""));
  if (is_absent()) late = timed(call);
  return late;
}

// That this rank waited too long, as `who` says it.
void check_late(const TimedError& late, const std::string& who, const std::string& seconds, const std::string& what) {
  CHECK(late.is_late());
  CHECK(late.text() == "tide::" + who + ": the deadline of " + seconds + " s passed: rank " +
                           std::to_string(CudaProcess::rank()) + " waited for " + what + ".");
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

// Initializes a fabric and closes it.
void meet_in_a_fabric(const CudaCommunicators& all) {
  tide::CudaFabric fabric(all);
  fabric.init();
  fabric.close();
}

TEST_CASE("CudaCommunicators: a rank that does not come is an error on the others, who can meet elsewhere") {
  CudaProcess::skip_unless_ranks_fit();
  const index_t n = CudaProcess::world();
  for (const index_t absent : {index_t{0}, n - 1}) {
    CAPTURE(absent);
    choose_place();
    if (CudaProcess::rank() != absent) {
      const TimedError late = timed([] { static_cast<void>(CudaCommunicators::from_environment(3s)); });
      CAPTURE(late.text());
      check_late(late, "CudaCommunicators", "3.000",
                 "all " + std::to_string(n) + " ranks to come to " + std::getenv("NCCL_COMM_ID"));
      CHECK(late.took >= 3s);
      CHECK(late.took < 8s);
    }
    static_cast<void>(CudaProcess::everybody(""));
  }
  choose_place();
  meet_in_a_fabric(CudaCommunicators::from_environment());
}

TEST_CASE("CudaCommunicators: a rank that does not split is an error on the others, and on it when it does") {
  CudaProcess::skip_unless_ranks_fit();
  choose_place();
  const CudaCommunicators all = CudaCommunicators::from_environment();
  const auto split = [&all] { static_cast<void>(all.split(0, static_cast<int>(CudaProcess::rank()), 3s)); };
  const TimedError late = when_one_is_absent(split);
  CAPTURE(late.text());
  CHECK(late.took < 8s);
  REQUIRE(late.error.has_value());
  if (is_absent()) return;
  check_late(late, "CudaCommunicators", "3.000", "all ranks to split their communicators");
}

TEST_CASE("CudaFabric: a rank that does not come to init is an error on the others, and on it when it comes") {
  CudaProcess::skip_unless_ranks_fit();
  choose_place();
  const CudaCommunicators all = CudaCommunicators::from_environment();
  const auto init = [&all] {
    tide::CudaFabric fabric(all, {.deadline = 1s});
    fabric.init();
  };
  const TimedError late = when_one_is_absent(init);
  CAPTURE(late.text());
  CHECK(late.took < 30s);
  REQUIRE(late.error.has_value());
  if (is_absent()) return;
  CHECK(text_of(init).find("communicators that a failed fabric has given up") != std::string::npos);
  check_late(late, "CudaFabric", "20.000", "all ranks to come to init");
}

TEST_CASE("CudaFabric: a rank that does not come to a second init is an error on the others, who can end") {
  CudaProcess::skip_unless_ranks_fit();
  choose_place();
  TimedError late;
  {
    const CudaCommunicators all = CudaCommunicators::from_environment();
    meet_in_a_fabric(all);
    tide::CudaFabric fabric(all, {.deadline = 1s});
    if (!is_absent()) late = timed([&] { fabric.init(); });
  }
  static_cast<void>(CudaProcess::everybody(""));
  if (is_absent()) return;
  CAPTURE(late.text());
  CHECK(late.took >= 20s);
  CHECK(late.took < 30s);
  check_late(late, "CudaFabric", "20.000", "all ranks to come to init");
}

TEST_CASE("CudaFabric: a rank that leaves a second fabric unclosed is an error on the others, and all can end") {
  CudaProcess::skip_unless_ranks_fit();
  choose_place();
  TimedError late;
  {
    const CudaCommunicators all = CudaCommunicators::from_environment();
    meet_in_a_fabric(all);
    tide::CudaFabric fabric(all, {.deadline = 1s});
    fabric.init();
    if (!is_absent()) late = timed([&] { fabric.close(); });
  }
  static_cast<void>(CudaProcess::everybody(""));
  if (is_absent()) return;
  CAPTURE(late.text());
  CHECK(late.is_late());
  CHECK(late.took < 8s);
  CHECK(late.text().find("waited for the other ranks to close") != std::string::npos);
}

TEST_CASE("CudaReplicas: a rank that does not come is an error on the others, and on it when it comes") {
  CudaProcess::skip_unless_ranks_fit();
  choose_place();
  const CudaCommunicators all = CudaCommunicators::from_environment();
  const TimedError late =
      when_one_is_absent([&all] { tide::CudaReplicas(all, 1, {.deadline = 1s}, {.deadline = 1s}); });
  CAPTURE(late.text());
  CHECK(late.took < 30s);
  REQUIRE(late.error.has_value());
  if (is_absent()) return;
  check_late(late, "CudaCommunicators", "20.000", "all ranks to split their communicators");
}

}  // namespace
