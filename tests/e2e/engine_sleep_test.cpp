// bascule-engine as a process that frees its cache, while a trainer continues to send.
#include <fstream>

#include "engine_fixture.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::test {
namespace {

class EngineSleep : public EngineProgramTest {
 protected:
  int post(const std::string& path) { return client_.post_json(url_ + path, "", absl::Seconds(60))->status; }

  static std::size_t resident_bytes(const Program& program) {
    std::ifstream file("/proc/" + std::to_string(program.pid()) + "/statm");
    std::size_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
};

TEST_F(EngineSleep, GivesTheCachesMemoryBackAndServesTheVersionThatCameMeanwhile) {
  const std::string endpoint = "shm://" + folder_.string() + "/sync";
  const Program engine = serve({"--sync", endpoint, "--cache-bytes", "256MiB"});
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint});
  ASSERT_TRUE(sender.ok()) << sender.status();
  const ref::WeightMap weights = *ref::read_weights(checkpoint(), *ref::read_config(checkpoint()), DType::kF32);
  ASSERT_TRUE(sender->register_model(libtorch::tensors({weights.begin(), weights.end()})).ok());
  ASSERT_TRUE(sender->wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender->send().ok());
  const char* request = R"({"prompt": [1,2,3], "temperature": 0, "max_tokens": 20, "ignore_eos": true})";
  const Json before = choices(request);

  const std::size_t awake = resident_bytes(engine);
  ASSERT_EQ(post("/sleep"), 200);
  const std::size_t asleep = resident_bytes(engine);
  EXPECT_GT(awake, asleep + (std::size_t{250} << 20)) << "of 256 MiB";
  EXPECT_EQ(complete(request).status, 503);

  weights.at("model.norm.weight").mul_(-1);
  const absl::StatusOr<SendReport> report = sender->send();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete()) << "asleep it acks";
  EXPECT_EQ(metric("version"), static_cast<double>(report->version));
  EXPECT_LT(resident_bytes(engine), asleep + (std::size_t{32} << 20));

  ASSERT_EQ(post("/wake_up"), 200);
  const Json after = choices(request);
  EXPECT_EQ(after[0]["versions"][0], report->version);
  EXPECT_NE(after[0]["token_ids"], before[0]["token_ids"]);
}

}  // namespace
}  // namespace bascule::test
