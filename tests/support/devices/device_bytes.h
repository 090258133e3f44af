// Memory for a test's tensors, on the host or on the first GPU, whichever the scheme under test needs. Values are made
// on the host and copied there; readers copy them back and check them. In a build without CUDA no scheme needs a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::test {

// Returns where an endpoint's scheme (or a scheme, by its name) needs the tensors: kHost, or device 0.
int device_for(std::string_view endpoint);
int gpu_count();                       // how many GPUs this process sees
std::vector<int> used_devices();       // devices on which this process has a context, some hundred MB each
bool can_reach(int device, int peer);  // true if `device` can read memory of `peer`
void warm_up(int device);              // makes the context, so that no test's deadline has to cover it
std::size_t used_bytes(int device);    // memory in use, by all processes

void lose_context(int device);  // this process loses the device for good

std::shared_ptr<std::byte> device_bytes(int device, std::size_t bytes);
// Like device_bytes(), but in host memory if `device` is kHost; put() writes it from the host.
std::shared_ptr<std::byte> bytes_on(int device, std::size_t bytes);
void put(std::byte* to, std::span<const std::byte> from, int device);
// Copies after all work that the device's default stream was given, and returns when the copy is done. For a peer's
// memory, `device` is the device that it is mapped on.
void upload(std::byte* to, std::span<const std::byte> from, int device);
void download(std::span<std::byte> to, const std::byte* from, int device);

// Returns the bytes of a contiguous tensor on any device.
std::vector<std::byte> bytes_of(const TensorView& tensor);
// Returns a source that copies the tensors of `source`, which are in host memory, to `device` at each views(). With
// kHost it returns `source`.
std::unique_ptr<TensorSource> placed(std::unique_ptr<TensorSource> source, int device);

}  // namespace bascule::test
