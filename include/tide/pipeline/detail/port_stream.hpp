// SPDX-License-Identifier: Apache-2.0
//
// A stream of a fabric whose type is not known here.

#pragma once

#include <tide/fabric/fabric.hpp>  // FabricPort, StreamRef, Event

namespace tide::detail {

class PortStream {
 public:
  explicit PortStream(StreamRef stream) noexcept : stream_(stream) {}

  [[nodiscard]] StreamRef ref() const noexcept { return stream_; }
  [[nodiscard]] Event record() { return stream_.port->record(stream_); }
  void wait(const Event& event) {
    if (event.valid()) stream_.port->wait(stream_, event);
  }
  void zero(void* target, index_t bytes) { stream_.port->zero(stream_, target, bytes); }

 private:
  StreamRef stream_;
};

}  // namespace tide::detail
