// SPDX-License-Identifier: Apache-2.0
//
// CudaRange: a range of NVTX in the domain "tide", so that profilers show operations and their parts on the host's time
// line. Without a tool a range costs a nanosecond or two.

#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace tide::detail {

class CudaRange {
 public:
  // @param number  shown beside the name: the step of an operation, the op of a part
  CudaRange(const char* name, std::uint64_t number) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = number;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
  ~CudaRange() { nvtxDomainRangePop(domain()); }

 private:
  [[nodiscard]] static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t one = nvtxDomainCreateA("tide");
    return one;
  }
};

}  // namespace tide::detail
