// A worker that copies parts of slots on a device verifies the same tiles there as it would on the host (parts_over.h).
#include "receiver/parts_over.h"
#include "support/devices/fake_device.h"

namespace bascule::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Devices, PartsOver,
                         testing::Values(ReadOver{.name = "Commit", .scheme = "shm", .device = 0, .as = on_fake_device},
                                         ReadOver{.name = "Background",
                                                  .scheme = "shm",
                                                  .apply = Apply::kBackground,
                                                  .device = 0,
                                                  .as = on_fake_device}),
                         [](const testing::TestParamInfo<ReadOver>& info) { return info.param.name; });

}  // namespace
}  // namespace bascule::test
