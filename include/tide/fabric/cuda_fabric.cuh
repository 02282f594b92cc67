// SPDX-License-Identifier: Apache-2.0
//
// CudaFabric: a rank on an NVIDIA GPU: copy engines move, stream memory operations wait, short-lived CTAs add.
//
//   auto all = tide::CudaCommunicators::of_devices({0, 1});
//   tide::CudaFabric fabric{all[rank]};            // on the thread of that rank
//   /* pools, pipelines and storage */
//   fabric.init();
//
// A signal is an 8-byte copy of an epoch word to the peer; a wait for one is a stream wait; lanes of a rank meet at
// events. A multicast write is one copy to the address that NCCL has for it behind an NVSwitch. What crosses nodes is
// put by NCCL, from NCCL 2.31.2 on, and no kernel moves a byte; a policy that asks for sends and receives gets NCCL's
// kernels. Stream capture is refused: epochs are immediate values and cannot advance in a replay.
//
// What one rank refuses, and the first error of any rank, fails the fabric on all ranks with the same words: ranks run
// ahead of each other, so nobody can take a call back that another one has begun. On a fabric of one rank a refused
// call changes nothing.
//
// Laws: those of Fabric                              (tests/fabric/cuda_fabric.test.cu)

#pragma once

#include <tide/fabric/cuda_communicators.cuh>     // CudaCommunicators
#include <tide/fabric/cuda_options.cuh>           // CudaOptions
#include <tide/fabric/cuda_stream.cuh>            // CudaStream
#include <tide/fabric/detail/cuda_mail.cuh>       // CudaMail
#include <tide/fabric/detail/cuda_multicast.cuh>  // MulticastStarts
#include <tide/fabric/detail/cuda_network.cuh>    // CudaNetwork
#include <tide/fabric/detail/cuda_nodes.cuh>      // CudaNodes
#include <tide/fabric/detail/cuda_pair.cuh>       // CudaPair
#include <tide/fabric/detail/cuda_program.cuh>    // CudaProgram
#include <tide/fabric/detail/cuda_queue.cuh>      // CudaQueue
#include <tide/fabric/detail/host_state.hpp>      // Failure
#include <tide/fabric/detail/nccl_multicast.cuh>  // NcclMulticast
#include <tide/fabric/detail/nccl_window.cuh>     // NcclWindow
#include <tide/fabric/detail/word_uses.hpp>       // WordUse

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace tide {

/// One rank's attachment to a GPU. Used by one host thread at a time; the current device is left as found.
class CudaFabric final : public FabricPort {
 public:
  using Stream = CudaStream;

  /// Ranks of the mesh are those of the communicators, node by node, or as the options group them.  @pre
  /// `communicators` outlives the fabric
  /// @throws Error (Errc::mismatch) when the NCCL library is older than its header, (Errc::argument) when ranks cannot
  ///         be grouped into the nodes of the options
  explicit CudaFabric(const CudaCommunicators& communicators, CudaOptions options = {});
  ~CudaFabric();

  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] MeshShape mesh() const noexcept override { return mesh_; }
  [[nodiscard]] std::string name() const override { return "CudaFabric"; }
  [[nodiscard]] bool has(Capability capability) const noexcept override {
    switch (capability) {
      case Capability::none:
        return true;
      case Capability::multicast:
      case Capability::switch_sums:
        return no_multicast_.empty();
      case Capability::puts:
        return no_puts_.empty();
      case Capability::send_receive:
        return no_sends_.empty();
    }
    return false;
  }
  [[nodiscard]] inline std::string lacks(Capability capability) const override;

  /// A stream that the fabric makes and owns.
  [[nodiscard]] CudaStream stream();
  /// The user's stream on the fabric's device.
  [[nodiscard]] CudaStream stream(cudaStream_t own) { return {*this, own}; }

  /// Collective: compares what the ranks have reserved and attached, makes the arena and its window, tries the path to
  /// every rank, loads every kernel.
  /// @throws Error (Errc::mismatch) when ranks differ, (Errc::capacity) when a device has too little memory; the same
  ///         on every rank
  void init();

  /// Waits for the work of this rank, meets the others, and gives everything back. May be called again. A rank that
  /// waits for the others longer than the deadline fails them, too: close when all are done.
  /// @throws the fabric's error when it has failed
  void close();

  /// Which path each transfer of each pipeline takes, for people to read.
  /// @throws Error (Errc::order) before `init`, when there are no paths yet
  [[nodiscard]] friend std::string describe(CudaFabric& fabric) { return fabric.describe_paths(); }

  /// For measurements: from now on each CTA of a sum, a cast or a copy of its own writes into `words` (memory of the
  /// device) on which SM it was and when; null ends it. Word 0 counts them and begins at 0, word 1 is set to how many
  /// there is room for, then come three words of each: the SM, begin and end in nanoseconds of the device's clock.
  void record_residency(std::uint64_t* words) noexcept { residency_ = words; }

  // What pipelines use. Virtual functions are `inline` here already, for the reason that HostFabric gives.
  template <Kernel::Kind Kind, Element E, Finish End>
  [[nodiscard]] static KernelCode kernel() noexcept {
    return detail::cuda_kernel<Kind, E, End>();
  }
  inline index_t reserve(index_t bytes, index_t alignment) override;
  [[nodiscard]] std::byte* arena() const noexcept override { return window_.memory(); }
  inline std::int32_t attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) override;
  inline void launch(std::int32_t program, std::int32_t variant, const Bindings& bindings, StreamRef stream) override;
  [[nodiscard]] inline Event exit_event(std::int32_t program, ExitKind kind) override;
  [[noreturn]] inline void refuse(Errc code, const std::string& text) override;
  inline Event record(StreamRef stream) override;
  inline void wait(StreamRef stream, const Event& event) override;
  inline void zero(StreamRef stream, void* target, index_t bytes) override;
  [[nodiscard]] inline bool passed(std::int32_t counter, std::uint64_t value) override;
  inline void synchronize(std::int32_t counter, std::uint64_t value) override;

 private:
  friend class CudaReplicas;

  // A counter of events: those of a program's exit, or of a stream, in a ring.
  struct Counter {
    std::vector<detail::CudaEvent>* ring = nullptr;
    std::uint64_t recorded = 0;
    bool of_program = false;  // then a place of the ring is used again only when what it stood for is done

    [[nodiscard]] bool known_passed(std::uint64_t value) const noexcept {
      return of_program && recorded >= value + ring->size();
    }
    [[nodiscard]] cudaEvent_t event(std::uint64_t value) const noexcept {
      return (*ring)[(value - 1) % ring->size()].get();
    }
  };
  // A run that the watchdog looks after.
  struct Flight {
    std::size_t program = 0;
    std::int32_t variant = 0;
    std::uint64_t run = 0;
    detail::Clock::time_point begun{};
  };
  // What a run that is late waits for.
  struct Late {
    std::size_t program = 0;
    std::uint64_t run = 0;
    index_t peer = -1;
    std::string text{};
  };
  enum class Phase : std::uint8_t { building, running, closed };

  // Waits on the host, with a deadline, where a queue is full.
  [[nodiscard]] auto polls(const std::string& what) {
    return [this, &what](detail::CudaQueue::Met met) { poll(what, std::move(met)); };
  }
  void admit(cudaStream_t stream, index_t calls, const std::string& what);
  [[nodiscard]] CUdeviceptr word_at(const detail::CudaProgram& program, index_t rank, index_t word) const;
  [[nodiscard]] static std::uint64_t epoch(index_t value, index_t per_run, std::uint64_t run) noexcept;
  [[nodiscard]] cudaStream_t lane(Operation operation, Lane lane);
  [[nodiscard]] std::int32_t new_counter(std::vector<detail::CudaEvent>& ring, bool of_program);
  [[nodiscard]] std::byte* locate(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                  std::byte* arena, Place place, index_t offset, const Bindings& bindings) const;
  [[nodiscard]] const std::byte* source(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                        const Op& op, const Bindings& bindings) const;
  void copy(const detail::CudaProgram& program, const detail::CudaVariant& variant, const Op& op, std::byte* arena,
            const Bindings& bindings, cudaStream_t stream) const;
  void enqueue(detail::CudaProgram& program, detail::CudaVariant& variant, const detail::CudaStep& step,
               const detail::CudaBindings& bindings, std::uint64_t run, cudaStream_t stream);
  void wait_for_ranks(detail::CudaProgram& program, const detail::CudaVariant& variant, const detail::CudaStep& step,
                      std::uint64_t run, cudaStream_t stream);
  void keep_rendezvous(detail::CudaProgram& program, const detail::CudaVariant& variant,
                       const detail::CudaRendezvous& rendezvous, const Bindings& bindings, std::uint64_t run,
                       cudaStream_t caller);
  [[nodiscard]] static index_t piece_stride(const Collective& collective, const Op& sum) noexcept;
  [[nodiscard]] bool is_bulk(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                             const detail::CudaStep& step, const detail::CudaBindings& bindings) const;
  void start_kernel(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                    const detail::CudaStep& step, const detail::CudaBindings& bindings, std::uint64_t run,
                    cudaStream_t stream);
  void register_arena();
  void open_networks();
  [[nodiscard]] std::pair<bool, KernelCode> find_step(detail::CudaStep::Kind kind) const;
  void require_of_all(std::string_view rule, const std::string& fault);
  [[nodiscard]] std::string find_multicast(index_t team) const;
  void agree_on_multicast();
  void open_multicast();
  void try_multicast();
  [[nodiscard]] std::vector<int> far_ranks() const;
  [[nodiscard]] int communicator_rank(index_t rank) const noexcept {
    return nodes_.in_communicator(Rank{static_cast<std::int32_t>(rank)});
  }
  [[nodiscard]] detail::CudaNetwork& network(Operation operation) noexcept {
    return networks_[static_cast<std::size_t>(operation)];
  }
  void record_exit(detail::CudaProgram& program, const Exit& exit, std::uint64_t run, cudaStream_t stream);
  [[nodiscard]] std::string describe_paths();
  [[nodiscard]] std::string describe_way(index_t rank) const;
  void run(detail::CudaProgram& program, detail::CudaVariant& variant, const Bindings& bindings, cudaStream_t caller);
  void fail(Errc code, const std::string& text, detail::CudaMail::Reach reach = detail::CudaMail::Reach::all);
  [[nodiscard]] bool fail_alone(Errc code, const std::string& text, detail::CudaMail::Reach reach);
  void fail_other(Errc code, const std::string& text);
  [[noreturn]] void fail_late(Duration deadline, const std::string& what);
  void complain(const Late& late);
  void hear();
  [[nodiscard]] bool listen();
  void meet_to_close();
  void part_from_far_ranks();
  void await(ncclResult_t begun, const char* call, const char* what);
  void compare_ranks();
  void compare_words();
  [[nodiscard]] std::vector<std::uint64_t> words_of_all(const std::vector<std::uint64_t>& own);
  void check_paths();
  void check_sends();
  void require_right_words(index_t wrong);
  [[nodiscard]] bool meet(bool is_good);
  void require_reach();
  void make_zeros();
  void load_kernels();
  void poll(const std::string& what, detail::CudaQueue::Met met);
  void poll(const std::string& what, detail::CudaQueue::Met met, Duration deadline);
  [[noreturn]] void raise_failure();
  [[nodiscard]] bool is_quiet() const;
  [[nodiscard]] bool holds_up_frees() const;
  void require_running(const char* call);
  void watch();
  [[nodiscard]] bool done(const Flight& flight);
  [[nodiscard]] Late diagnose(const Flight& flight);
  [[nodiscard]] bool others_know();
  void release_when_known();
  void release_waits();
  [[nodiscard]] bool is_running() const;
  void stop() noexcept;

  CudaOptions options_;
  const CudaCommunicators* communicators_;
  ncclComm_t gather_;
  int device_;
  bool has_bulk_loads_ = false;  // whether the GPU has what kernels with bulk loads need
  std::string no_puts_;          // why there are none; empty where there are
  std::string no_sends_;         // the same
  std::string no_multicast_;     // the same
  index_t machines_ = 1;         // nodes that NCCL finds
  ncclComm_t node_ = nullptr;    // of the ranks of this one, where a window over all of them is not to be had
  detail::CudaNodes nodes_;
  Rank rank_{};
  MeshShape mesh_{};
  Phase phase_ = Phase::building;
  index_t reserved_ = 0;
  detail::NcclWindow window_;
  detail::NcclMulticast nccl_multicast_;
  detail::MulticastStarts multicast_;
  index_t multicast_trial_ = -1;  // where in the arena; -1 where no plan of any rank asks hardware for multicast
  detail::CudaMail mail_;
  std::array<detail::CudaNetwork, 2> networks_;  // by Operation
  std::vector<detail::CudaNetwork::Landing> landings_;
  detail::NcclParcels parcels_;  // these five: of the rendezvous that is being enqueued
  std::vector<detail::CudaNetwork::Raise> raises_;
  std::vector<int> rendezvous_peers_;
  std::vector<cudaEvent_t> sent_;
  std::vector<cudaStream_t> put_lanes_;
  index_t network_words_ = 0;  // in the arena: CudaNetwork::words_bytes for each
  cudaStream_t init_stream_ = nullptr;
  cudaStream_t rescue_stream_ = nullptr;
  int* meeting_word_ = nullptr;          // on the device
  void* zeros_ = nullptr;                // for gradients that are missing from tables
  std::uint64_t* seen_words_ = nullptr;  // pinned: what the watchdog reads words into
  std::uint64_t* residency_ = nullptr;
  std::vector<std::unique_ptr<detail::CudaProgram>> programs_;
  std::vector<std::uint64_t> fingerprints_;
  std::vector<detail::WordUse> word_uses_;
  std::map<std::tuple<Operation, LaneKind, std::int32_t>, cudaStream_t> lanes_;
  std::vector<cudaStream_t> streams_;
  std::map<cudaStream_t, detail::CudaQueue> queues_;
  std::map<cudaStream_t, std::pair<std::int32_t, std::unique_ptr<std::vector<detail::CudaEvent>>>> marks_;
  std::deque<Counter> counters_;
  bool closed_by_all_ = false;
  detail::Failure failure_;
  detail::Clock::time_point failed_since_{};  // the watchdog's, and then that of what ends it
  std::atomic<bool> has_released_{false};     // whether waits have been let go
  bool is_stuck_ = false;                     // whether it ended with streams that wait for good
  bool has_run_down_ = false;               // whether an error has been raised, after which streams are not waited for
  std::shared_ptr<detail::CudaPair> pair_;  // with the other fabric of the rank, where a CudaReplicas gave it two
  std::mutex flights_mutex_;
  std::deque<Flight> flights_;
  std::atomic<bool> stopping_{false};
  std::thread watchdog_;
};

static_assert(Fabric<CudaFabric>);

}  // namespace tide

#include <tide/fabric/detail/cuda_describe.cuh>
#include <tide/fabric/detail/cuda_fabric_bodies.cuh>
#include <tide/fabric/detail/cuda_fabric_init.cuh>
#include <tide/fabric/detail/cuda_watchdog.cuh>
