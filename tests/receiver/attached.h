// A sender's memory owned by the test: slots (two by default), a control page and a layout. And an attachment to it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include <bascule/receiver/attachment.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule::test {

inline constexpr Epoch kEpoch = 3;

struct SenderMemory {
  Layout layout;
  std::vector<SlotMemory> slots;
  ControlPage page;

  static SenderMemory make(std::vector<TensorSpec> specs, std::vector<std::pair<std::string, std::string>> tied = {},
                           std::uint32_t slots = 2) {
    SenderMemory made{.layout = Layout::arrange(std::move(specs), std::move(tied)).value(),
                      .slots = {},
                      .page = ControlPage::make(kEpoch).value()};
    for (std::uint32_t i = 0; i < slots; ++i)
      made.slots.push_back(make_memfd("bascule-slot", made.layout.bytes()).value());
    return made;
  }

  Welcome welcome() const {
    Welcome welcome;
    welcome.id = 1;
    welcome.epoch = kEpoch;
    welcome.layout = layout;
    for (std::uint32_t i = 0; i < slots.size(); ++i) welcome.slots.push_back(i);
    return welcome;
  }
  std::vector<UniqueFd> descriptors() const {
    std::vector<UniqueFd> copies;
    for (const SlotMemory& slot : slots) copies.emplace_back(::dup(slot.descriptor.get()));
    copies.emplace_back(::dup(page.descriptor()));
    return copies;
  }
  absl::StatusOr<std::shared_ptr<Attachment>> attach() const {
    return Attachment::make(*find_scheme("shm").value(), Endpoint{}, welcome(), descriptors());
  }
  Publication publication(Version version, std::uint32_t slot) const {
    return {.version = version, .slot = {kEpoch, slot}, .bytes = layout.bytes(), .digest = std::nullopt};
  }
};

}  // namespace bascule::test
