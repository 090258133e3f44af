// Memory of a test's tensors where the scheme under test wants them: in host memory, or on the first GPU. Values are
// made on the host and copied; readers copy back and check. In a build without CUDA nothing wants a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::test {

// Where the scheme of an endpoint, or a scheme by its name, wants tensors to lie: kHost, or device 0.
int device_for(std::string_view endpoint);
int gpu_count();                       // that this process sees
std::vector<int> used_devices();       // on which this process has a context, some hundred MB each
bool can_reach(int device, int peer);  // whether `device` reads memory of `peer`
void warm_up(int device);              // makes the context, so that no deadline of a test pays for it
std::size_t used_bytes(int device);    // of the device, by all processes

void lose_context(int device);  // to this process, for good

std::shared_ptr<std::byte> device_bytes(int device, std::size_t bytes);
// The same on a device, or in host memory where that is kHost; and writing it from the host.
std::shared_ptr<std::byte> bytes_on(int device, std::size_t bytes);
void put(std::byte* to, std::span<const std::byte> from, int device);
// Behind what the default stream of the device was given; returns when it is done. A peer's memory is read by the
// device that it is mapped on.
void upload(std::byte* to, std::span<const std::byte> from, int device);
void download(std::span<std::byte> to, const std::byte* from, int device);

// What a contiguous tensor holds, wherever it lies.
std::vector<std::byte> bytes_of(const TensorView& tensor);
// Tensors of a test in host memory, copied to `device` at each views(); kHost: the same.
std::unique_ptr<TensorSource> placed(std::unique_ptr<TensorSource> source, int device);

}  // namespace bascule::test
