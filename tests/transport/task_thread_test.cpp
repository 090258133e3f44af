#include <bascule/transport/task_thread.h>

#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

namespace bascule {
namespace {

TEST(TaskThread, RunsTasksInOrderOnItsOwnThread) {
  std::vector<int> order;
  std::promise<std::thread::id> done;
  TaskThread tasks;
  for (int i = 0; i < 100; ++i) tasks.submit([&order, i] { order.push_back(i); });
  tasks.submit([&] { done.set_value(std::this_thread::get_id()); });
  EXPECT_NE(done.get_future().get(), std::this_thread::get_id());
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(TaskThread, RunsATaskAtOnceWhereNoneIsAheadOfIt) {
  TaskThread tasks;
  std::thread::id ran_on;
  tasks.run_or_submit([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  std::promise<void> after;
  tasks.run_or_submit([&] { tasks.submit([&] { after.set_value(); }); });
  after.get_future().wait();  // the thread continues with tasks that came meanwhile

  std::promise<void> started, ending;
  std::promise<std::thread::id> done;
  tasks.submit([&] {
    started.set_value();
    ending.get_future().wait();
  });
  started.get_future().wait();
  tasks.run_or_submit([&] { done.set_value(std::this_thread::get_id()); });
  ending.set_value();
  EXPECT_NE(done.get_future().get(), std::this_thread::get_id()) << "it waits for the task before it";
}

TEST(TaskThread, LetsGoOfATaskBeforeTheNext) {
  const auto held = std::make_shared<int>(0);
  std::promise<long> seen;
  TaskThread tasks;
  tasks.submit([copy = held] {});
  tasks.submit([&] { seen.set_value(held.use_count()); });
  EXPECT_EQ(seen.get_future().get(), 1) << "a mapping must go on the thread that made it";
}

TEST(TaskThread, FinishesTheTaskUnderWayAndDropsTheRest) {
  std::promise<void> started, ending;
  bool finished = false, ran = false;
  std::optional<TaskThread> tasks(std::in_place);
  tasks->submit([&] {
    started.set_value();
    ending.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // while the destructor begins
    finished = true;
  });
  tasks->submit([&] { ran = true; });
  started.get_future().wait();
  std::thread end([&] { ending.set_value(); });
  tasks.reset();
  end.join();
  EXPECT_TRUE(finished);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace bascule
