// SPDX-License-Identifier: Apache-2.0
//
// What crosses nodes in one operation: puts and waits, or sends and receives, of one NCCL communicator, on one stream
// of their own.
//
//   lane        ---- event ---> network stream    ncclPutSignal                          put, over when it comes back
//   lane        ---- event ---> network stream    write the word, ncclPutSignal          signal to another node
//   lane, wait  <---- word ----  network stream   ncclWaitSignal, write the word         wait for what is put
//
//   lanes       ---- event ---> network stream    ncclSend and ncclRecv in one group     a rendezvous
//   lane, wait  <---- word ----                   write the words of what has come
//   lanes       <---- event ---                                                          puts of it are over
//
// NCCL runs all work of a communicator in the order in which it is enqueued, and a put to another machine holds its
// stream until it is done, so lanes keep out of it: here the issue order of the plan is the order of one stream, and
// `verify` proves that a plan makes progress with all lanes merged. Two communicators, one for each operation, do not
// wait for each other.
//
// NCCL counts arrivals, plans speak of words with values: what is put to a rank counts its word up by ones, which
// CudaVariant checks, so the difference of two values is a count. Words that come without data (a slot is free, a chunk
// has been added) are put themselves, with a signal index that nobody waits for; the waiting lane watches the word.
//
// A wait of NCCL cannot be released by anyone else, nor can a kernel that waits for the other side. After a lost rank
// the stream stays as it is and is left to the end of the process.

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>    // CudaEvent
#include <tide/fabric/detail/nccl_parcels.cuh>  // nccl_hand_over
#include <tide/fabric/detail/nccl_puts.cuh>     // nccl_put, nccl_wait

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tide::detail {

class CudaNetwork {
 public:
  // What a rank of another node has put and is waited for: so many puts, and what their word then is.
  struct Landing {
    int peer = 0;  // in the communicator
    int count = 0;
    CUdeviceptr word = 0;
    std::uint64_t value = 0;
  };
  // An own word that is raised behind what has come.
  struct Raise {
    CUdeviceptr word = 0;
    std::uint64_t value = 0;
  };
  enum class Kind : std::uint8_t { put, wait, rendezvous };
  // What the stream is at.
  struct Head {
    std::vector<int> peers{};
    Kind kind = Kind::wait;
  };

  // Of steps that may be queued, and of puts to a rank that is out of reach: NCCL's own queue holds 32 of those or more
  // (NCCL_RMA_PROXY_QUEUE_SIZE), and spins when it is full.
  static constexpr std::size_t capacity = 128;
  static constexpr std::size_t puts_to_a_far_peer = 24;
  // Rendezvous: NCCL's host call spins where its own queues are full.
  static constexpr std::size_t most_rendezvous = 16;

  // Of the arena.
  static constexpr index_t words_bytes = 32;

  // Driver calls of a put or signal, about.
  static constexpr index_t calls_of_put = 5;

  CudaNetwork() = default;
  CudaNetwork(const CudaNetwork&) = delete;
  CudaNetwork& operator=(const CudaNetwork&) = delete;

  // @param words  words_bytes of the arena: for a word on its way, for farewells to land, for tokens to come and go
  void open(const NcclWindow& arena, ncclComm_t communicator, std::size_t ranks, index_t words) {
    communicator_ = communicator;
    farewell_ = words + 8;
    staging_ = reinterpret_cast<std::uint64_t*>(arena.memory() + words);
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
    entries_.resize(capacity);
    for (Entry& entry : entries_) entry.peers.reserve(ranks);
    puts_.assign(ranks, 0);
    most_puts_.assign(ranks, capacity);
    waits_.reserve(ranks);
  }
  // What puts need, where there are any.
  // @param window  the arena's, on the communicator
  // @param far     ranks of the communicator that are out of reach
  void allow_puts(ncclWindow_t window, const std::vector<int>& far) {
    window_ = window;
    far_ = far;
    for (const int rank : far) most_puts_[static_cast<std::size_t>(rank)] = puts_to_a_far_peer;
  }
  [[nodiscard]] bool is_open() const noexcept { return stream_ != nullptr; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  // Puts bytes of the arena to the same window of a peer, at `offset` of it, after what `lane` has done and before what
  // it does next. `poll(met)` waits on the host.
  template <class Poll>
  void put(const std::byte* from, index_t bytes, int peer, index_t offset, cudaStream_t lane, const Poll& poll) {
    const Entry& entry = begin_put(peer, lane, poll);
    check(nccl_put(from, static_cast<std::size_t>(bytes), peer, window_, static_cast<std::size_t>(offset),
                   nccl_data_signal, communicator_, stream_),
          "ncclPutSignal");
    end(entry);
    check(cudaStreamWaitEvent(lane, entry.done.get()), "cudaStreamWaitEvent");
  }

  // Writes a word of a peer, at `offset` of its arena, after what `lane` has done; the lane goes on.
  template <class Poll>
  void signal(std::uint64_t value, int peer, index_t offset, cudaStream_t lane, const Poll& poll) {
    const Entry& entry = begin_put(peer, lane, poll);
    check(cuStreamWriteValue64(stream_, reinterpret_cast<CUdeviceptr>(staging_), value, 0), "cuStreamWriteValue64");
    check(nccl_put(staging_, 8, peer, window_, static_cast<std::size_t>(offset), nccl_word_signal, communicator_,
                   stream_),
          "ncclPutSignal");
    end(entry);
  }

  // Raises own words when what they tell of has landed.
  template <class Poll>
  void await(const std::vector<Landing>& landings, const Poll& poll) {
    Entry& entry = begin([] { return true; }, poll);
    waits_.clear();
    for (const Landing& landing : landings) {
      waits_.emplace_back(landing.count, landing.peer);
      entry.peers.push_back(landing.peer);
    }
    check(cudaEventRecord(entry.begun.get(), stream_), "cudaEventRecord");
    check(nccl_wait(waits_, communicator_, stream_), "ncclWaitSignal");
    for (const Landing& landing : landings) {
      check(cuStreamWriteValue64(stream_, landing.word, landing.value, 0), "cuStreamWriteValue64");
    }
    end(entry);
  }

  // Sends and receives, after what the events stand for; then raises words, and lets lanes go on. NCCL's own verdict is
  // the caller's to judge.
  // @param lanes  that go on when all is over
  template <class Poll>
  [[nodiscard]] ncclResult_t rendezvous(const NcclParcels& parcels, const std::vector<int>& peers,
                                        const std::vector<cudaEvent_t>& sent, const std::vector<Raise>& raises,
                                        const std::vector<cudaStream_t>& lanes, const Poll& poll) {
    Entry& entry = begin([this] { return open_rendezvous_ < most_rendezvous; }, poll);
    entry.peers.assign(peers.begin(), peers.end());
    entry.kind = Kind::rendezvous;
    for (const cudaEvent_t event : sent) check(cudaStreamWaitEvent(stream_, event), "cudaStreamWaitEvent");
    check(cudaEventRecord(entry.begun.get(), stream_), "cudaEventRecord");
    const ncclResult_t status = nccl_hand_over(parcels, communicator_, stream_);
    if (status != ncclSuccess) return status;
    for (const Raise& raise : raises) {
      check(cuStreamWriteValue64(stream_, raise.word, raise.value, 0), "cuStreamWriteValue64");
    }
    end(entry);
    for (const cudaStream_t lane : lanes) check(cudaStreamWaitEvent(lane, entry.done.get()), "cudaStreamWaitEvent");
    return ncclSuccess;
  }
  // Sent where only the coming counts, and where it is received.
  [[nodiscard]] NcclSend token_to(int rank) const noexcept { return {staging_ + 2, 8, rank}; }
  [[nodiscard]] NcclReceive token_from(int rank) const noexcept { return {staging_ + 3, 8, rank}; }

  // Sends each of these ranks a word that names both, and takes theirs: NCCL connects ranks when they first meet, which
  // blocks the host. The first rank whose word did not arrive as it was sent; -1 if all did.
  // @param own  the own rank, in the communicator
  template <class Poll>
  [[nodiscard]] int greet(const std::vector<int>& peers, int own, const Poll& poll) {
    const auto greeting = [](int from, int to) {
      return (static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to)) + 0x7469646500000000ULL;
    };
    const std::size_t count = peers.size();
    std::vector<std::uint64_t> words(2 * count);
    for (std::size_t i = 0; i < count; ++i) words[i] = greeting(own, peers[i]);
    std::uint64_t* device = nullptr;
    check(cudaMalloc(&device, words.size() * 8), "cudaMalloc");
    check(cudaMemcpyAsync(device, words.data(), words.size() * 8, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    NcclParcels all;
    for (std::size_t i = 0; i < count; ++i) {
      all.sends.push_back({device + i, 8, peers[i]});
      all.receives.push_back({device + count + i, 8, peers[i]});
    }
    check(nccl_hand_over(all, communicator_, stream_), "ncclGroupEnd");
    poll([this] { return !is_busy(stream_); });
    check(cudaMemcpy(words.data(), device, words.size() * 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaFree(device), "cudaFree");
    for (std::size_t i = 0; i < count; ++i) {
      if (words[count + i] != greeting(peers[i], own)) return peers[i];
    }
    return -1;
  }

  // Says farewell to all ranks out of reach and waits for theirs, on the stream: when it is idle, whatever they have
  // put has landed here. A put that is over at its sender need not have.
  void part() {
    if (far_.empty()) return;
    check(nccl_put_to_each(far_, staging_, 8, window_, static_cast<std::size_t>(farewell_), nccl_data_signal,
                           communicator_, stream_),
          "ncclPutSignal");
    check(nccl_wait_for_each(far_, communicator_, stream_), "ncclWaitSignal");
  }

  // What the stream cannot get over, if there is such a thing and it does not wait for a lane. From any thread.
  [[nodiscard]] std::optional<Head> head() {
    const std::lock_guard lock(mutex_);
    for (std::uint64_t i = first_; i < next_; ++i) {
      const Entry& entry = entries_[i % capacity];
      if (!is_pending(entry.done.get())) continue;
      if (is_pending(entry.begun.get())) break;
      return Head{entry.peers, entry.kind};
    }
    return std::nullopt;
  }

  // @pre the stream is idle
  void release() noexcept {
    if (stream_ != nullptr) cudaStreamDestroy(std::exchange(stream_, nullptr));
    entries_.clear();
  }

 private:
  struct Entry {
    CudaEvent begun{};
    CudaEvent done{};
    std::vector<int> peers{};
    Kind kind = Kind::wait;
  };

  // The next entry, when there is room for it and `more()`. Nobody sees it before `end`.
  template <class More, class Poll>
  Entry& begin(const More& more, const Poll& poll) {
    const auto room = [this, &more] {
      retire();
      return next_ - first_ < capacity && more();
    };
    if (!room()) poll(room);
    Entry& entry = entries_[next_ % capacity];
    entry.peers.clear();
    entry.kind = Kind::wait;
    return entry;
  }

  // The stream goes on when the lane has come to here.
  template <class Poll>
  const Entry& begin_put(int peer, cudaStream_t lane, const Poll& poll) {
    const auto at = static_cast<std::size_t>(peer);
    Entry& entry = begin([this, at] { return puts_[at] < most_puts_[at]; }, poll);
    entry.peers.push_back(peer);
    entry.kind = Kind::put;
    check(cudaEventRecord(entry.begun.get(), lane), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream_, entry.begun.get()), "cudaStreamWaitEvent");
    check(cudaEventRecord(entry.begun.get(), stream_), "cudaEventRecord");
    return entry;
  }

  void end(const Entry& entry) {
    check(cudaEventRecord(entry.done.get(), stream_), "cudaEventRecord");
    const std::lock_guard lock(mutex_);
    if (entry.kind == Kind::put) ++puts_[static_cast<std::size_t>(entry.peers.front())];
    if (entry.kind == Kind::rendezvous) ++open_rendezvous_;
    ++next_;
  }

  // Forgets what is done.
  void retire() {
    const std::lock_guard lock(mutex_);
    for (; first_ < next_; ++first_) {
      const Entry& entry = entries_[first_ % capacity];
      if (is_pending(entry.done.get())) return;
      if (entry.kind == Kind::put) --puts_[static_cast<std::size_t>(entry.peers.front())];
      if (entry.kind == Kind::rendezvous) --open_rendezvous_;
    }
  }

  ncclComm_t communicator_ = nullptr;
  ncclWindow_t window_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::uint64_t* staging_ = nullptr;
  index_t farewell_ = 0;
  std::vector<int> far_;
  std::vector<std::size_t> most_puts_;  // to each peer
  std::vector<NcclWait> waits_;
  std::mutex mutex_;  // of what follows
  std::vector<Entry> entries_;
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
  std::vector<std::size_t> puts_;    // to each peer, not known to be done
  std::size_t open_rendezvous_ = 0;  // not known to be done
};

}  // namespace tide::detail
