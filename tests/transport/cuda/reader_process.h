// A slot of device memory with random bytes, and a separate process's report on it: see message.h.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <random>
#include <string>
#include <vector>

#include "message.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/posix/socket_io.h>

namespace bascule::inline v0::cuda {

// The answer of a new cuda-reader.
inline std::string ask(const Message& message, int descriptor) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return "no socket";
  const UniqueFd mine(ends[0]), its(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its.get(), 0);
  char program[] = BASCULE_CUDA_READER;
  char* arguments[] = {program, nullptr};
  pid_t child = 0;
  const int spawned = posix_spawn(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return "no process";
  const iovec piece{.iov_base = const_cast<Message*>(&message), .iov_len = sizeof(message)};
  send_some(mine.get(), {&piece, 1}, {&descriptor, 1});
  std::string answer(4096, '\0');
  pollfd readable{.fd = mine.get(), .events = POLLIN, .revents = 0};
  const bool came = poll(&readable, 1, 60'000) == 1;
  const ssize_t got = came ? read(mine.get(), answer.data(), answer.size()) : 0;
  answer.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (!came) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return answer;
}

inline std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> all(bytes);
  for (std::byte& byte : all) byte = static_cast<std::byte>(random());
  return all;
}

inline std::string digest_of(const std::vector<std::byte>& bytes) {
  kernels::ThreadPool pool(2);
  return to_hex(kernels::digest(bytes, pool));
}

struct Slot {
  Device device;
  Allocation allocation;
  DeviceMapping mapping;
  UniqueFd descriptor;
  std::vector<std::byte> bytes;

  explicit Slot(std::size_t size) : bytes(random_bytes(size)) {
    device = (*devices())[0];
    allocation = *Allocation::make(device.ordinal, size);
    mapping = *DeviceMapping::map(allocation, Access::kReadWrite, device.ordinal);
    descriptor = *allocation.export_descriptor();
    EXPECT_EQ(cudaMemcpy(mapping.data(), bytes.data(), size, cudaMemcpyHostToDevice), cudaSuccess);
    // A copy from pageable memory may return before it is complete, and other processes or an unmapping come next.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  Message message(Command command, int mapped_on = 0) const {
    return {command, device.uuid, mapped_on, allocation.bytes(), bytes.size()};
  }
};

}  // namespace bascule::inline v0::cuda
