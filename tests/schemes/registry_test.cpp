#include <bascule/schemes/registry.h>

#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/schemes/relay/options.h>
#include <bascule/transport/device.h>
#include <bascule/transport/endpoint.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Registry, FindsASchemeByItsName) {
  const auto shm = find_scheme("shm");
  ASSERT_THAT(shm, IsOk());
  EXPECT_EQ((*shm)->name, "shm");
  EXPECT_TRUE((*shm)->needs_descriptors);
  EXPECT_EQ(*find_scheme("shm"), *shm) << "it lives as long as the program";
  ASSERT_TRUE((*shm)->make_sender && (*shm)->make_receiver);
  EXPECT_NE((*shm)->make_sender(Endpoint{}, 1).value(), (*shm)->make_sender(Endpoint{}, 1).value())
      << "each sender has a separate transport";
  EXPECT_NE((*shm)->make_receiver(Endpoint{}), nullptr);
}

TEST(Registry, KnowsCudaIpcOrSaysThatTheBuildHasNoCuda) {
  const auto cuda_ipc = find_scheme("cuda-ipc");
  if (why_no_cuda().ok()) {
    ASSERT_THAT(cuda_ipc, IsOk());
    EXPECT_TRUE((*cuda_ipc)->on_device);
    EXPECT_FALSE(scheme_for(Endpoint::parse("cuda-ipc://node1:29500").value(), nullptr).ok());
  } else {
    EXPECT_THAT(cuda_ipc, StatusIs(StatusCode::kUnimplemented, HasSubstr("this build has no CUDA")));
  }
}

TEST(Registry, KnowsASchemeAlsoIfTheBuildLacksIt) {
  for (const char* name : {"auto", "cuda-ipc", "memmap", "nccl", "shm"}) {
    const Scheme* const known = known_scheme(name);
    ASSERT_NE(known, nullptr) << name;
    EXPECT_EQ(known->name, name);
    const absl::StatusOr<const Scheme*> found = find_scheme(name);
    EXPECT_EQ(found.ok(), known->make_sender && known->make_receiver) << name;
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), known->usable().code()) << name;
    }
  }
  EXPECT_TRUE(known_scheme("auto")->on_device && known_scheme("auto")->over_tcp);
  EXPECT_EQ(known_scheme("smh"), nullptr);
  for (const Scheme& built : all_schemes()) EXPECT_TRUE(built.make_sender) << built.name;
  EXPECT_LE(all_schemes().size(), known_schemes().size());
}

TEST(Registry, NamesThePlainestScheme) {
  EXPECT_EQ(plainest_scheme(/*on_device=*/false).name, "shm");
  EXPECT_EQ(plainest_scheme(/*on_device=*/true).name, "cuda-ipc");
}

TEST(Registry, SaysWhichSchemesKeepFiles) {
  EXPECT_FALSE(find_scheme("shm").value()->keeps_files);
  EXPECT_TRUE(find_scheme("memmap").value()->keeps_files);
}

TEST(Registry, ListsWhatThereIsAndNamesTheNearest) {
  EXPECT_THAT(find_scheme("smh"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("no scheme is called 'smh'; expected one of: "),
                                                    HasSubstr("memmap, nccl, shm"), HasSubstr("(did you mean shm?)"))));
  EXPECT_THAT(find_scheme("carrier-pigeon"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("expected one of: "), Not(HasSubstr("did you mean")))));
  EXPECT_THAT(find_scheme(""), StatusIs(StatusCode::kNotFound, HasSubstr("expected one of: ")));
}

TEST(Registry, OtherHostsAreForSchemesThatTakeThemBesideTheirOwn) {
  EXPECT_THAT(scheme_for(Endpoint::parse("shm:///run/x?listen=node1:29500").value(), nullptr),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("listen="), HasSubstr("which shm is not"))));
  Scheme network, over_both;
  network.name = "network";
  over_both.name = "both";
  over_both.needs_descriptors = true;
  over_both.options = relay::options();
  over_both.over_tcp = std::make_shared<const Scheme>(network);
  const auto scheme_at = [&](std::string_view url) { return scheme_for(Endpoint::parse(url).value(), &over_both); };
  EXPECT_EQ(scheme_at("both:///run/x?listen=node1:29500").value(), &over_both);
  EXPECT_EQ(scheme_at("both://node1:29500").value(), over_both.over_tcp.get());
  EXPECT_THAT(scheme_at("both:///run/x?relay=tree"), IsOk());
  EXPECT_THAT(scheme_at("both://node1:29500?relay=tree"),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("endpoint \"both://node1:29500\": relay= is for the sender and engines on its "
                                       "host; leave it out"))));
}

TEST(Registry, AnOptionOfOtherSchemesNamesThem) {
  const auto refusal = [](std::string_view url) {
    return std::string(scheme_for(Endpoint::parse(url).value(), nullptr).status().message());
  };
  EXPECT_EQ(refusal("shm:///run/x?durable=on"),
            "endpoint \"shm:///run/x\": durable= needs a scheme that keeps its slots in files, which shm is not; leave "
            "it out, or use memmap");
  EXPECT_THAT(refusal("memmap:///run/x?durable=yes"),
              HasSubstr("memmap:///run/x\": durable: expected one of off, on, found \"yes\""));
  EXPECT_THAT(refusal("memmap:///run/x?fresh=on&durable=off"), "");
  EXPECT_THAT(refusal("memmap:///run/x?durabel=on"),
              HasSubstr("unknown option \"durabel\"; did you mean \"durable\"?"));
  EXPECT_THAT(refusal("shm:///run/x?timout=3s"), HasSubstr("unknown option \"timout\"; did you mean \"timeout\"?"));
  for (const char* const number : {"+3", "%2B3", "-3", "0x3", "3 ", ""})
    EXPECT_THAT(refusal(std::string("nccl://node1:29500?ctas=") + number), HasSubstr("ctas: expected 1 to 64 blocks"));
  EXPECT_THAT(refusal("nccl://node1:29500?ctas=65"),
              HasSubstr("ctas: expected 1 to 64 blocks of the GPU, found \"65\""));
}

TEST(Registry, TellsWhatTheOptionsOfEachSchemeDo) {
  const std::string help = help_for_options();
  for (const Scheme& scheme : known_schemes()) {
    for (const SchemeOption& option : scheme.options) {
      EXPECT_THAT(help, HasSubstr(option.name + "=" + option.values + "\n")) << scheme.name;
      EXPECT_FALSE(option.help.empty() || option.needs.empty()) << option.name;
    }
  }
  EXPECT_THAT(help, HasSubstr("memmap: on: a send returns only when"));
}

TEST(RelayOption, ReadsItsShape) {
  const auto shape = [](std::string_view url) { return relay::kShape.in(Endpoint::parse(url).value()); };
  EXPECT_EQ(shape("cuda-ipc:///x"), std::nullopt);
  EXPECT_EQ(shape("cuda-ipc:///x?relay=off"), RelayShape::kOff);
  EXPECT_EQ(shape("cuda-ipc:///x?relay=tree"), RelayShape::kTree);
  EXPECT_EQ(shape("cuda-ipc:///x?relay=auto"), RelayShape::kChain);
  EXPECT_THAT(relay::parse_shape("ring"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("chain")));
}

TEST(Registry, BlocksOfAGpuAreForSchemesWhoseKernelsMoveBytes) {
  EXPECT_THAT(scheme_for(Endpoint::parse("shm:///run/x?ctas=8").value(), nullptr),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("ctas="), HasSubstr("which shm is not"))));
}

TEST(Registry, ARelayIsForSchemesWhoseEnginesHandVersionsOn) {
  EXPECT_THAT(scheme_for(Endpoint::parse("shm:///run/x?relay=chain").value(), nullptr),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("relay="), HasSubstr("which shm is not"))));
  const Scheme given{.name = "given", .options = relay::options(), .make_sender = {}, .make_receiver = {}};
  EXPECT_EQ(scheme_for(Endpoint::parse("given:///run/x?relay=tree").value(), &given).value(), &given);
}

TEST(Registry, AHostIsRefusedWhereDescriptorsMustTravel) {
  const Endpoint host = Endpoint::parse("shm://node1:29500").value();
  EXPECT_THAT(scheme_for(host, nullptr),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("shm://node1:29500"), HasSubstr("descriptors"),
                                                           HasSubstr("write shm:///folder"))));
  Scheme given{.name = "given", .needs_descriptors = true, .make_sender = {}, .make_receiver = {}};
  EXPECT_FALSE(scheme_for(host, &given).ok());
  given.needs_descriptors = false;
  EXPECT_EQ(scheme_for(host, &given).value(), &given);
  EXPECT_EQ(scheme_for(Endpoint::parse("shm:///x").value(), nullptr).value(), find_scheme("shm").value());
  EXPECT_THAT(scheme_for(Endpoint::parse("smh:///x").value(), nullptr),
              StatusIs(StatusCode::kNotFound, HasSubstr("shm?")));
}

}  // namespace
}  // namespace bascule
