// An attachment to a sender's memory that the test itself owns: two slots, a control page, a layout.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "receiver/attachment.h"
#include "schemes/registry.h"
#include "transport/posix/memfd.h"

namespace bascule::test {

inline constexpr Epoch kEpoch = 3;

struct SenderMemory {
  Layout layout;
  std::vector<SlotMemory> slots;
  ControlPage page;

  static SenderMemory make(std::vector<TensorSpec> specs, std::vector<std::pair<std::string, std::string>> tied = {}) {
    SenderMemory made{.layout = Layout::arrange(std::move(specs), std::move(tied)).value(),
                      .slots = {},
                      .page = ControlPage::make(kEpoch).value()};
    for (int i = 0; i < 2; ++i) made.slots.push_back(make_memfd("bascule-slot", made.layout.bytes()).value());
    return made;
  }

  Welcome welcome() const {
    Welcome welcome;
    welcome.id = 1;
    welcome.epoch = kEpoch;
    welcome.layout = layout;
    welcome.slots = {0, 1};
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
