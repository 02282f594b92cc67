// SPDX-License-Identifier: Apache-2.0
//
// What both fabrics of a process have in common: what they can do, lanes by what they are for, which programs share,
// and how often streams have been recorded.

#pragma once

#include <tide/core/error.hpp>                  // raise
#include <tide/core/index.hpp>                  // Rank
#include <tide/core/text.hpp>                   // text
#include <tide/fabric/detail/host_variant.hpp>  // max_runs
#include <tide/fabric/host_options.hpp>         // HostLanes
#include <tide/plan/plan.hpp>                   // Lane, Operation
#include <tide/transport/transport.hpp>         // Capability

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// What ranks of a process can do.
[[nodiscard]] inline bool has_capability(const HostOptions& options, Capability capability) noexcept {
  switch (capability) {
    case Capability::multicast:
    case Capability::switch_sums:
      return options.multicast == HostMulticast::available;
    case Capability::puts:
    case Capability::send_receive:
      return options.network == HostNetwork::available;
    case Capability::none:
      break;
  }
  return true;
}

// Sentences of both fabrics of a process.
[[nodiscard]] inline std::string foreign_stream(Rank rank) {
  return text({"tide::Fabric: the stream must belong to the fabric of the pipeline; the call on rank ", rank.value,
               " got another one's."});
}
[[nodiscard]] inline std::string foreign_event() {
  return "tide::Fabric: an event can be waited for on its own rank only.";
}
// The place of a rank in a list of all.  @throws Error (Errc::argument) when there is none
[[nodiscard]] inline std::size_t place_of(Rank rank, index_t ranks) {
  if (rank.value < 0 || rank.value >= ranks) {
    raise(Errc::argument, text({"tide::Fabric: a rank must be one of the mesh; rank ", rank.value,
                                " was asked for, there are ", ranks, "."}));
  }
  return static_cast<std::size_t>(rank.value);
}
[[nodiscard]] inline std::string oldest_run(const std::string& label) {
  return text({"the oldest of ", max_runs, " runs in flight of ", label});
}

// @tparam L  what a lane is, movable
template <class L>
class SharedLanes {
 public:
  // The lane for a lane of a plan; the first time it is made.
  template <class Make>
  L& at(HostLanes lanes, Operation operation, Lane lane, const Make& make) {
    if (lanes == HostLanes::merged) {
      operation = Operation::gather;
      lane = {LaneKind::caller, 0};
    }
    for (Named& named : lanes_) {
      if (named.operation == operation && named.lane == lane) return named.body;
    }
    return lanes_.emplace_back(Named{operation, lane, make()}).body;
  }

  template <class F>
  void for_each(const F& f) const {
    for (const Named& named : lanes_) f(named.body);
  }

 private:
  struct Named {
    Operation operation;
    Lane lane;
    L body;
  };
  std::vector<Named> lanes_;
};

// How often a stream has been recorded, and the counter that says how often that has been passed.
struct StreamMark {
  std::int32_t counter = -1;
  std::uint64_t recorded = 0;
};

// @tparam L  what tells streams apart
template <class L>
class StreamMarks {
 public:
  // Records a stream once more.  @param make  -> the number of a new counter
  template <class Make>
  StreamMark record(const L& stream, const Make& make) {
    auto mark = std::find_if(marks_.begin(), marks_.end(), [&](const auto& m) { return m.first == stream; });
    if (mark == marks_.end()) mark = marks_.insert(mark, {stream, StreamMark{make(), 0}});
    ++mark->second.recorded;
    return mark->second;
  }

 private:
  std::vector<std::pair<L, StreamMark>> marks_;
};

}  // namespace tide::detail
