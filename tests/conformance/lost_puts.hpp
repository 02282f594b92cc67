// SPDX-License-Identifier: Apache-2.0
//
// Collectives over nodes whose network loses something: each put, and each signal, of a run in turn, while everything
// else comes late and in any order that a network may choose. On every rank they end in the right bytes, or in one
// error that names operation, step and who is waited for; what has been compared by then was right.
//
//   every_loss<GatherSession<Intra, Inter>>(mesh, options)     three gathers, the last two in flight together
//   every_loss<ReduceSession<Inter, Inbox>>(mesh, options)     as many reduces
//
// Both take the ranks that they are on as their last parameter: HostRanks, SimRanks.
// Instantiate them for a transport or an inbox of your own.

#pragma once

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tide_test::lost_puts {

constexpr int runs = 3;
/// So long that a rank of a busy machine comes to its next op.
constexpr std::chrono::milliseconds deadline{sized(500, 2500)};

/// What is lost.
enum class Loss {
  connection,  ///< it, and all that its lane sends to that rank later
  signal,      ///< its signal; the bytes of a put come
};

inline std::string name(Loss loss) { return loss == Loss::connection ? "connection" : "signal"; }

/// Something that goes to another node, and what becomes of it.
struct Case {
  std::uint64_t run = 0;
  index_t rank = 0;
  index_t seq = 0;
  tide::OpKind kind = tide::OpKind::put;
  index_t to = 0;
  Loss loss = Loss::connection;
};

/// What became of a rank.
struct Outcome {
  std::string error;   ///< empty where it got to its end
  std::string wrong;   ///< bytes, or a call that did not repeat the error
  index_t unread = 0;  ///< buffers that were to be compared
  std::chrono::nanoseconds took{};
};

/// Several chunks, an empty shard where there are three ranks or more.
inline tide::DynamicLayout layout_on(tide::MeshShape mesh) {
  tide::DynamicGroup group;
  group.add("w", {11 * mesh.ranks() - 1, 12}, Element::bf16, Element::bf16);
  group.add("b", {2}, Element::bf16, Element::bf16);
  return {group, mesh};
}

/// Gathers, as one rank's program makes them.
template <class Intra, class Inter, class Of = HostRanks>
class GatherSession {
 public:
  using Ranks = Of;
  static constexpr Values values = Values::spread;

  GatherSession(typename Ranks::Fabric& fabric, const tide::DynamicLayout& layout, const CollectiveOracle& oracle)
      : pool_(fabric, layout), gather_(fabric, pool_, layout, oracle, "lossy") {}

  void begin(tide::HostStream& stream) { poison_slots<Ranks>(pool_, stream); }
  void step(int number, tide::HostStream& stream) {
    constexpr Source sources[] = {Source::shards, Source::masters, Source::in_place};
    gather_.step(pool_, sources[number % 3], static_cast<std::uint64_t>(number), stream);
  }
  void call(tide::HostStream& stream) { static_cast<void>(gather_.pipeline().enqueue(gather_.shards(), stream)); }
  [[nodiscard]] const Checks<Ranks>& checks() const { return gather_.checks(); }

 private:
  tide::SlotPool<tide::Depth<2>, tide::DynamicLayout> pool_;
  GatherRank<Ranks, tide::DynamicLayout, Intra, Inter> gather_;
};

/// Reduces, as one rank's program makes them.
template <class Inter, class Inbox, class Reducer = tide::CopyEngineReducer<>, class Of = HostRanks>
class ReduceSession {
 public:
  using Ranks = Of;
  static constexpr Values values = tide::CrossesItself<Reducer> ? Values::whole : Values::spread;  // of any order

  ReduceSession(typename Ranks::Fabric& fabric, const tide::DynamicLayout& layout, const CollectiveOracle& oracle)
      : reduce_(fabric, layout, oracle, "lossy") {}

  void begin(tide::HostStream&) {}
  void step(int number, tide::HostStream& stream) {
    reduce_.step(From::storage, static_cast<std::uint64_t>(number), stream);
  }
  void call(tide::HostStream& stream) {
    static_cast<void>(reduce_.pipeline().enqueue(reduce_.storage(), reduce_.output(), stream));
  }
  [[nodiscard]] const Checks<Ranks>& checks() const { return reduce_.checks(); }

 private:
  ReduceRank<Ranks, tide::DynamicLayout, Reducer, Inbox, Inter> reduce_;
};

/// Some runs on all ranks; an error must be repeated by each further call.
template <class Session>
std::vector<Outcome> outcomes_of(const tide::DynamicLayout& layout, const CollectiveOracle& oracle,
                                 const tide::HostOptions& options) {
  const tide::MeshShape mesh = layout.view().mesh;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(mesh.ranks()));
  typename Session::Ranks ranks;
  if constexpr (requires { ranks.options.host; }) {
    ranks.options.host = options;
  } else {
    ranks.options = options;
  }
  ranks.run(mesh, [&](auto& fabric) {
    Outcome& own = outcomes[static_cast<std::size_t>(fabric.rank().value)];
    const auto begun = std::chrono::steady_clock::now();
    const auto text_of = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const tide::Error& error) {
        return error.what();
      }
      return {};
    };
    std::optional<Session> session;
    std::optional<tide::HostStream> stream;
    own.error = text_of([&] {
      session.emplace(fabric, layout, oracle);
      fabric.init();
      stream.emplace(fabric.stream());
      session->begin(*stream);
      for (int run = 0; run < runs; ++run) {
        session->step(run, *stream);
        if (run == 0) stream->synchronize();
      }
      fabric.close();
    });
    own.took = std::chrono::steady_clock::now() - begun;
    if (!stream) return;
    own.wrong = session->checks().verdict_so_far();
    own.unread = session->checks().unread();
    if (own.error.empty()) return;
    const std::string again[] = {text_of([&] { session->call(*stream); }), text_of([&] { stream->synchronize(); }),
                                 text_of([&] { fabric.close(); }), text_of([&] { fabric.init(); })};
    for (const std::string& text : again) {
      if (text != own.error) own.wrong += "not the same error again: " + text;
    }
  });
  return outcomes;
}

/// Puts and signals to other nodes come up to 200 microseconds late, each by itself.
inline std::chrono::microseconds lateness(const tide::HostHookPoint& point) {
  const auto place = static_cast<std::uint64_t>(point.seq) * 64 + static_cast<std::uint64_t>(point.rank.value);
  return std::chrono::microseconds(mix(point.run, place) % 200);
}

/// What an error must say.
inline const std::regex& named() {
  static const std::regex form(
      "tide::(?:HostFabric: the deadline of .* passed|SimFabric: nothing can go on): .*(gather|reduce) of 'lossy' \\(2 "
      "parameters\\), step ([0-9]+), "
      "rank ([0-9]+), lane .*, op [0-9]+ \\(wait\\) waits for rank ([0-9]+).*");
  return form;
}

/// Whether a deadline passed before anything was lost: the machine does much else, and the case says nothing.
inline bool came_too_early(const std::vector<Outcome>& outcomes, const Case& lost) {
  return std::any_of(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
    std::smatch parts;
    if (outcome.error.find("init needs all ranks") != std::string::npos) return true;
    return std::regex_match(outcome.error, parts, named()) && std::stoull(parts[2]) < lost.run;
  });
}

/// That a rank got to its end with all bytes right, or has said what it must say.
inline void check_outcome(const Outcome& outcome, const Case& lost) {
  CHECK(outcome.wrong == "");
  CHECK(outcome.took < runs * deadline + 10s);  // 10 s for a machine that does much else
  if (outcome.error.empty()) {
    CHECK(outcome.unread == 0);
    return;
  }
  std::smatch parts;
  REQUIRE_MESSAGE(std::regex_match(outcome.error, parts, named()), outcome.error);
  CHECK_MESSAGE(std::stoull(parts[2]) >= lost.run, outcome.error);
  CHECK_MESSAGE(parts[3] != parts[4], outcome.error);
}

/// What a run without a loss sends to other nodes.
template <class Session>
std::vector<Case> cases_of(const tide::DynamicLayout& layout, const CollectiveOracle& oracle,
                           tide::HostOptions options) {
  std::vector<Case> cases;
  std::mutex mutex;
  options.network_hook = [&](const tide::HostHookPoint& point) {
    const std::lock_guard lock(mutex);
    for (const Loss loss : {Loss::connection, Loss::signal}) {
      cases.push_back({point.run, point.rank.value, point.seq, point.op.kind, point.op.peer, loss});
    }
    return tide::HostDelivery{lateness(point)};
  };
  options.deadline = 60s;
  for (const Outcome& outcome : outcomes_of<Session>(layout, oracle, options)) {
    REQUIRE(outcome.error == "");
    REQUIRE(outcome.wrong == "");
    REQUIRE(outcome.unread == 0);
  }
  return cases;
}

/// Loses each put and each signal to another node in turn, of every run in `of_runs` or of all.
/// @returns how many there were
template <class Session>
index_t every_loss(tide::MeshShape mesh, const tide::HostOptions& options, const std::vector<std::uint64_t>& of_runs) {
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  const tide::DynamicLayout layout = layout_on(mesh);
  const CollectiveOracle oracle(layout.view(), Session::values);
  std::vector<Case> cases = cases_of<Session>(layout, oracle, options);
  std::erase_if(cases, [&](const Case& c) { return std::count(of_runs.begin(), of_runs.end(), c.run) == 0; });
  std::vector<std::vector<Outcome>> outcomes(cases.size());
  const auto lose = [&](std::size_t i) {
    tide::HostOptions lossy = options;
    lossy.deadline = deadline;
    lossy.network_hook = [lost = cases[i]](const tide::HostHookPoint& point) {
      const bool here = point.run == lost.run && point.rank.value == lost.rank && point.seq == lost.seq;
      return tide::HostDelivery{lateness(point), here && lost.loss == Loss::connection,
                                here && lost.loss == Loss::signal};
    };
    for (int attempt = 0; attempt == 0 || (attempt < 5 && came_too_early(outcomes[i], cases[i])); ++attempt) {
      outcomes[i] = outcomes_of<Session>(layout, oracle, lossy);
    }
  };
  // Clusters share nothing, and these do little but wait.
  const auto at_once = static_cast<std::size_t>(96 / mesh.ranks());
  for (std::size_t first = 0; first < cases.size(); first += at_once) {
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < std::min(first + at_once, cases.size()); ++i) threads.emplace_back(lose, i);
    for (std::thread& thread : threads) thread.join();
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& lost = cases[i];
    CAPTURE(lost.run);
    CAPTURE(lost.rank);
    CAPTURE(lost.seq);
    CAPTURE(lost.to);
    CAPTURE(tide::name(lost.kind));
    CAPTURE(name(lost.loss));
    std::vector<std::string> said;
    for (const Outcome& outcome : outcomes[i]) {
      check_outcome(outcome, lost);
      if (!outcome.error.empty()) said.push_back(outcome.error);
    }
    for (const std::string& error : said) CHECK(error == said.front());
    // The rank that misses the bytes cannot have come to its end.
    if (lost.kind == tide::OpKind::put && lost.loss == Loss::connection) {
      CHECK(!outcomes[i][static_cast<std::size_t>(lost.to)].error.empty());
    }
  }
  return static_cast<index_t>(cases.size());
}

}  // namespace tide_test::lost_puts
