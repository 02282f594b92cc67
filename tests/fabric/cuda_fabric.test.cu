// SPDX-License-Identifier: Apache-2.0
// labels: gpu gpu2
//
// The pipelines on GPUs: one rank, and two on two GPUs; every byte against loops on the host.

#include <tide/fabric/cuda_cluster.cuh>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gpu.cuh"
#include "support/raised.hpp"

#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <cstdlib>
#include <string>

namespace {

using namespace tide;

inline constexpr auto awkward =
    group(param<bf16>("odd", {7, 13}), param<bf16>("one", {1}), param<bf16>("none", {0, 4}),
          repeat<6>("experts.{}.", param<bf16>("gate", {24, 40}), param<bf16>("down", {40, 24})),
          param<bf16>("columns", {5, 16}, shard(1)), param<bf16>("large", {1000, 96}), param<bf16>("norm", {33}));

using Layout = ShardLayout<awkward, Mesh<1, dynamic>>;
using Ringed = Ring<Chunks<2>, Bytes<16384>>;

Layout layout_of(const FabricPort& fabric) { return Layout::on(fabric.mesh()); }

std::vector<int> first_devices(int count) {
  std::vector<int> list;
  for (int d = 0; d < count; ++d) list.push_back(d);
  return list;
}

void put16(unsigned char* at, std::uint16_t bits) { std::memcpy(at, &bits, 2); }
void put32(unsigned char* at, float value) { std::memcpy(at, &value, 4); }

// What a rank's slot must hold: every parameter's bytes; everything between stays poison.
template <class Write>
std::string wrong_slot(const LayoutView& view, const std::byte* slot, const Write& write) {
  const auto expected = gpu::fill(view, Buffer::slot, Rank{0}, write);
  const auto got = gpu::download(slot, expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) return "byte " + std::to_string(i) + " of the slot";
  }
  return {};
}

template <class Transport, class Source>
std::string gather_steps(int world, Source, CudaOptions options, int steps) {
  CudaCluster cluster(first_devices(world), options);
  std::vector<std::string> wrong(static_cast<std::size_t>(world));
  cluster.run([&](CudaFabric& fabric) {
    SlotPool<Depth<2>, Layout> slots{fabric};
    AllGather<Layout, Transport> gather{fabric, slots};
    Shards<Layout> shards{fabric};
    MasterShards<Layout> masters{fabric};
    fabric.init();
    CudaStream stream = fabric.stream();
    const Layout layout = layout_of(fabric);
    const LayoutView view = layout.view();
    std::string& fault = wrong[static_cast<std::size_t>(fabric.rank().value)];
    for (int step = 0; step < steps && fault.empty(); ++step) {
      const auto s = static_cast<std::uint32_t>(step);
      const auto bits = [&](index_t p, index_t e, unsigned char* at) {
        put16(at, static_cast<std::uint16_t>(gpu::hash(std::uint32_t(p), std::uint32_t(e), 0, s)));
      };
      const auto number = [&](index_t p, index_t e) { return gpu::spread(std::uint32_t(p), std::uint32_t(e), 0, s); };
      const auto cast = [&](index_t p, index_t e, unsigned char* at) { put16(at, convert<bf16>(number(p, e)).bits); };
      cudaMemset(slots.life().data(SlotIndex{step % 2}), 0xEE, static_cast<std::size_t>(slots.slot_bytes()));
      cudaDeviceSynchronize();
      if constexpr (std::is_same_v<Source, InPlace>) {
        auto own = gather.own_block(slots.acquire(stream));
        stream.synchronize();
        view.for_each_piece(fabric.rank(), [&](const Piece& piece) {
          const StridedRows<std::byte> rows = own.rows_of(piece.parameter);
          for (index_t row = 0; row < rows.rows; ++row) {
            std::vector<unsigned char> line(static_cast<std::size_t>(rows.width));
            for (index_t i = 0; i < piece.width; ++i) {
              bits(piece.parameter.value, row * piece.pitch + piece.first + i, line.data() + 2 * i);
            }
            gpu::upload(rows.data + row * rows.pitch, line);
          }
        });
        auto params = gather.enqueue(in_place, stream);
        params.complete().synchronize();
        fault = wrong_slot(view, params.data(), bits);
        params.release(stream);
      } else if constexpr (Source::value == Buffer::shards) {
        gpu::upload(shards.data(), gpu::fill(view, Buffer::shards, fabric.rank(), bits));
        auto params = gather.enqueue(shards, stream);
        params.complete().synchronize();
        fault = wrong_slot(view, params.data(), bits);
        params.release(stream);
      } else {
        gpu::upload(masters.data(),
                    gpu::fill(view, Buffer::masters, fabric.rank(),
                              [&](index_t p, index_t e, unsigned char* at) { put32(at, number(p, e)); }));
        auto params = gather.enqueue(masters, stream);
        params.complete().synchronize();
        fault = wrong_slot(view, params.data(), cast);
        params.release(stream);
      }
      if (!fault.empty()) fault += ", rank " + std::to_string(fabric.rank().value) + ", step " + std::to_string(step);
    }
    fabric.close();
    fabric.close();
  });
  for (const std::string& fault : wrong) {
    if (!fault.empty()) return fault;
  }
  return {};
}

// Holds whatever it runs on for a while.
template <class Milliseconds>
__global__ void hold(Milliseconds duration) {
  unsigned long long begin = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < static_cast<unsigned long long>(duration) * 1000000ULL);
}

template <Buffer B>
using From = std::integral_constant<Buffer, B>;

// The tree of the ranks' gradients, as a child would add it.
float tree(const std::vector<float>& leaves, std::size_t first, std::size_t last) {
  if (last - first == 1) return leaves[first];
  std::size_t half = 1;
  while (half * 2 < last - first) half *= 2;
  return tree(leaves, first, first + half) + tree(leaves, first + half, last);
}

template <class Epilogue>
std::string reduce_steps(int world, bool table, int steps) {
  CudaOptions options;
  options.missing_gradients = table;
  CudaCluster cluster(first_devices(world), options);
  std::vector<std::string> wrong(static_cast<std::size_t>(world));
  cluster.run([&](CudaFabric& fabric) {
    ReduceScatter<Layout, CopyEngineReducer<Burst, Epilogue>, SingleNode, Ringed> reduce{fabric};
    Gradients<Layout> gradients{fabric};
    MasterShards<Layout> output{fabric};
    fabric.init();
    CudaStream stream = fabric.stream();
    const Layout layout = layout_of(fabric);
    const LayoutView view = layout.view();
    GradientTable<Layout> pointers{layout};
    const float scale = 0.37F;
    reduce.scale(scale);
    std::string& fault = wrong[static_cast<std::size_t>(fabric.rank().value)];
    std::vector<float> before;
    for (int step = 0; step < steps && fault.empty(); ++step) {
      const auto s = static_cast<std::uint32_t>(step);
      // In a table, another parameter of another rank is missing in each step.
      const auto missing = [&](index_t p, int rank) {
        return table && p == step % view.group.size() && rank == step % world;
      };
      const auto gradient = [&](index_t p, index_t e, std::uint32_t rank) {
        return convert<bf16>(gpu::spread(std::uint32_t(p), std::uint32_t(e), rank, s));
      };
      gpu::upload(gradients.data(),
                  gpu::fill(view, Buffer::gradients, fabric.rank(), [&](index_t p, index_t e, unsigned char* at) {
                    put16(at, gradient(p, e, static_cast<std::uint32_t>(fabric.rank().value)).bits);
                  }));
      if (step == 0) {
        cudaMemset(output.data(), 0, static_cast<std::size_t>(view.bytes(Buffer::output, fabric.rank())));
        cudaDeviceSynchronize();
      }
      for (index_t p = 0; p < view.group.size(); ++p) {
        pointers.set(ParameterIndex{p}, gradients.at(ParameterIndex{p}));
        if (missing(p, static_cast<int>(fabric.rank().value))) pointers.missing(ParameterIndex{p});
      }
      const ReduceTicket ticket =
          table ? reduce.enqueue(pointers, output.view(), stream) : reduce.enqueue(gradients, output.view(), stream);
      ticket.gradients_free.synchronize();
      cudaMemset(gradients.data(), 0x7F, static_cast<std::size_t>(Layout::gradient_bytes));  // free means free
      ticket.shards_ready.synchronize();
      const auto raw =
          gpu::download(output.data(), static_cast<std::size_t>(view.bytes(Buffer::output, fabric.rank())));
      std::vector<float> got(raw.size() / 4);
      std::memcpy(got.data(), raw.data(), got.size() * 4);
      if (before.empty()) before.assign(got.size(), 0.0F);
      view.for_each_piece(fabric.rank(), [&](const Piece& piece) {
        for (index_t i = 0; i < piece.elements(); ++i) {
          const index_t e = piece.width == 0 ? 0 : i / piece.width * piece.pitch + piece.first + i % piece.width;
          std::vector<float> leaves;
          for (int r = 0; r < world; ++r) {
            const bool zero = missing(piece.parameter.value, r);
            leaves.push_back(
                zero ? 0.0F : static_cast<float>(gradient(piece.parameter.value, e, static_cast<std::uint32_t>(r))));
          }
          const auto at = static_cast<std::size_t>(piece.offset(Buffer::output) / 4 + i);
          volatile float scaled = tree(leaves, 0, leaves.size()) * scale;
          const float expected = std::is_same_v<Epilogue, Accumulate> ? before[at] + scaled : scaled;
          if (std::memcmp(&got[at], &expected, 4) != 0 && fault.empty()) {
            fault = "parameter " + std::to_string(piece.parameter.value) + ", element " + std::to_string(e) +
                    ", step " + std::to_string(step);
          }
        }
      });
      before = got;
    }
    fabric.close();
  });
  for (const std::string& fault : wrong) {
    if (!fault.empty()) return fault;
  }
  return {};
}

}  // namespace

TEST_CASE("CudaFabric: a gather delivers every byte, from shards, from masters and in place") {
  REQUIRE_MESSAGE(gpu::devices() > 0, "needs a GPU");
  for (int world = 1; world <= std::min(2, gpu::devices()); ++world) {
    CAPTURE(world);
    CHECK(gather_steps<UnicastTransport>(world, From<Buffer::shards>{}, {}, 5) == "");
    CHECK(gather_steps<UnicastTransport>(world, From<Buffer::masters>{}, {}, 5) == "");
    CHECK(gather_steps<UnicastTransport>(world, InPlace{}, {}, 5) == "");
  }
}

// Two ranks have no multicast address whatever the machine, and NCCL is not asked for one.
TEST_CASE("CudaFabric: a multicast plan runs where a test asks for emulation, and is refused by name on two ranks") {
  CudaOptions emulated;
  emulated.multicast = CudaMulticast::emulated;
  const int world = std::min(2, gpu::devices());
  CHECK(gather_steps<MulticastTransport>(world, From<Buffer::shards>{}, emulated, 4) == "");
  CHECK(gather_steps<MulticastTransport>(world, From<Buffer::masters>{}, emulated, 4) == "");
  for (const CudaMulticast option : {CudaMulticast::hardware, CudaMulticast::missing}) {
    CudaOptions options;
    options.multicast = option;
    std::string refusal;
    try {
      static_cast<void>(gather_steps<MulticastTransport>(world, From<Buffer::shards>{}, options, 1));
    } catch (const Error& error) {
      refusal = error.what();
    }
    std::string lacks;
    CudaCluster(first_devices(world), options).run([&](CudaFabric& fabric) {
      if (fabric.rank() == Rank{0}) lacks = fabric.lacks(Capability::multicast);
    });
    CAPTURE(lacks);
    CHECK_FALSE(lacks.empty());
    CHECK(refusal ==
          "tide::Transport: the fabric must have what the policy needs; multicast needs multicast, which this "
          "CudaFabric has not: " +
              lacks + ".");
    if (option == CudaMulticast::missing) CHECK(lacks == "CudaOptions::multicast is missing");
    const char* nvls = std::getenv("NCCL_NVLS_ENABLE");
    if (option == CudaMulticast::hardware && nvls != nullptr && std::string(nvls) == "0") {
      CHECK((lacks == "NCCL_NVLS_ENABLE=0 switches it off" ||
             lacks.find("MULTICAST_SUPPORTED is 0") != std::string::npos));
    }
  }
}

TEST_CASE("CudaFabric: a reduce gives the bits of the tree, stored and accumulated, from storage and from pointers") {
  for (int world = 1; world <= std::min(2, gpu::devices()); ++world) {
    CAPTURE(world);
    CHECK(reduce_steps<Store>(world, false, 4) == "");
    CHECK(reduce_steps<Store>(world, true, 8) == "");
    CHECK(reduce_steps<Accumulate>(world, false, 4) == "");
    CHECK(reduce_steps<Accumulate>(world, true, 4) == "");
  }
}

TEST_CASE("CudaFabric: a peer that never comes is a named error within the deadline, and everything can be destroyed") {
  if (gpu::devices() < 2) {
    MESSAGE("skipped: needs two GPUs");
    return;
  }
  CudaOptions options;
  options.deadline = std::chrono::seconds(2);
  std::string error;
  CudaCluster cluster({0, 1}, options);
  cluster.run([&](CudaFabric& fabric) {
    SlotPool<Depth<1>, Layout> slots{fabric};
    AllGather<Layout, UnicastTransport> gather{fabric, slots, "lonely"};
    Shards<Layout> shards{fabric};
    fabric.init();
    CudaStream stream = fabric.stream();
    if (fabric.rank().value == 1) return;
    auto params = gather.enqueue(shards, stream);
    try {
      params.complete().synchronize();
    } catch (const Error& thrown) {
      error = thrown.what();
    }
  });
  CAPTURE(error);
  CHECK(error.find("deadline") != std::string::npos);
  CHECK(error.find("gather of 'lonely'") != std::string::npos);
  CHECK(error.find("rank 1") != std::string::npos);
}

TEST_CASE("CudaFabric: a gather in place finishes while a kernel holds every SM") {
  if (gpu::devices() < 2) {
    MESSAGE("skipped: needs two GPUs, since a copy inside one takes SMs");
    return;
  }
  std::array<std::string, 2> wrong;
  std::barrier meeting(2);
  CudaCluster cluster({0, 1});
  cluster.run([&](CudaFabric& fabric) {
    std::string& text = wrong[static_cast<std::size_t>(fabric.rank().value)];
    SlotPool<Depth<1>, Layout> slots{fabric};
    AllGather<Layout, UnicastTransport> gather{fabric, slots};
    fabric.init();
    CudaStream stream = fabric.stream();
    CudaStream other = fabric.stream();
    int sms = 0;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, static_cast<int>(fabric.rank().value));
    hold<int><<<1, 1, 0, other.get()>>>(1);  // loads it
    other.synchronize();
    static_cast<void>(gather.own_block(slots.acquire(stream)));
    meeting.arrive_and_wait();
    // Two CTAs of 1024 threads take every place for threads that an SM has.
    hold<int><<<static_cast<unsigned>(2 * sms), 1024, 0, other.get()>>>(1500);
    const Event held = other.record();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto params = gather.enqueue(in_place, stream);
    params.complete().synchronize();
    if (held.ready()) text = "the kernel was done before the gather";
    params.release(stream);
    held.synchronize();
    fabric.close();
  });
  CHECK(wrong[0] == "");
  CHECK(wrong[1] == "");
}

TEST_CASE("CudaFabric: a gradient missing from a table is refused where no zeros were set aside") {
  std::string error;
  CudaCluster cluster(first_devices(1));
  cluster.run([&](CudaFabric& fabric) {
    ReduceScatter<Layout, CopyEngineReducer<>, SingleNode, Ringed> reduce{fabric};
    Gradients<Layout> gradients{fabric};
    MasterShards<Layout> output{fabric};
    fabric.init();
    CudaStream stream = fabric.stream();
    GradientTable<Layout> pointers{layout_of(fabric)};
    for (index_t p = 0; p < reduce.layout().view().group.size(); ++p) {
      pointers.set(ParameterIndex{p}, gradients.at(ParameterIndex{p}));
    }
    pointers.missing(ParameterIndex{0});
    try {
      static_cast<void>(reduce.enqueue(pointers, output.view(), stream));
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    fabric.close();
  });
  CAPTURE(error);
  CHECK(error.find("tide::CudaFabric: a gradient that is missing from a table needs CudaOptions::missing_gradients") ==
        0);
}

TEST_CASE("CudaFabric: ranks that construct different pipelines get the same error") {
  if (gpu::devices() < 2) {
    MESSAGE("skipped: needs two GPUs");
    return;
  }
  std::array<std::string, 2> errors;
  CudaCluster cluster({0, 1});
  cluster.run([&](CudaFabric& fabric) {
    SlotPool<Depth<1>, Layout> slots{fabric};
    AllGather<Layout, UnicastTransport> gather{fabric, slots};
    if (fabric.rank().value == 1) static_cast<void>(fabric.reserve(64, 64));
    try {
      fabric.init();
    } catch (const Error& thrown) {
      errors[static_cast<std::size_t>(fabric.rank().value)] = thrown.what();
    }
  });
  CHECK(errors[0] == errors[1]);
  CHECK(errors[0].find("the size of the arena") != std::string::npos);
}

TEST_CASE("CudaCluster: a rank that throws before init is an error on the other, and what it threw is thrown") {
  if (gpu::devices() < 2) {
    MESSAGE("skipped: needs two GPUs");
    return;
  }
  std::string other;
  std::string thrown;
  {
    CudaCluster cluster({0, 1}, {.deadline = std::chrono::seconds(1)});
    thrown = tide_test::text_of([&] {
      cluster.run([&](CudaFabric& fabric) {
        if (fabric.rank().value == 1) raise(Errc::argument, "tide::Test: a rank throws.");
        other = tide_test::text_of([&] { fabric.init(); });
      });
    });
  }
  CHECK(other == "tide::CudaFabric: the deadline of 20.000 s passed: rank 0 waited for all ranks to come to init.");
  CHECK(thrown == "tide::Test: a rank throws.");
}

TEST_CASE("CudaFabric: 300 interleaved steps of gather and reduce with changing data") {
  const int world = std::min(2, gpu::devices());
  CHECK(gather_steps<UnicastTransport>(world, From<Buffer::shards>{}, {}, 150) == "");
  CHECK(reduce_steps<Store>(world, false, 150) == "");
}
