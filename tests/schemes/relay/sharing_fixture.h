// Two workers of one GPU: `a` copies, and `b` shares its buffers.
#pragma once

#include <cstdio>
#include <fstream>
#include <string>

#include "schemes/relay/relay_receiver_fixture.h"

namespace bascule::inline v0::relay {

class RelaySharing : public RelayReceiverFixture {
 protected:
  RelaySharing() : a(make(1)), b(make_without_buffers(2)) { introduce(b, a); }

  // Both get the version, the second one in place.
  void get(Version version) {
    fill(version);
    auto shared = share(b, version, a.id), copied = receive(a, version);
    EXPECT_THAT(copied.get(), test::IsOk());
    EXPECT_THAT(shared.get(), test::IsOk());
    expect_got(a, version);
    expect_got(b, version);
  }
  static void expect_got(const Engine& engine, Version version) {
    EXPECT_EQ(engine.line->next(Kind::kGot).message.number, version);
  }
  // Whether both views show the same pages.
  static bool same_memory(const SlotView& one, const SlotView& other) {
    const auto file_of = [](const SlotView& view) {
      std::ifstream maps("/proc/self/maps");
      const auto at = reinterpret_cast<std::uintptr_t>(view.bytes.data());
      for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        unsigned long offset = 0, inode = 0;
        char access[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %lu", &begin, &end, access, &offset, &inode) != 5) continue;
        if (at < begin || at >= end) continue;
        EXPECT_STREQ(access, "r--s") << "an engine must not write what others share";
        return inode;
      }
      return 0UL;
    };
    return file_of(one) == file_of(other) && file_of(one) != 0;
  }

  Engine a, b;
};

}  // namespace bascule::inline v0::relay
