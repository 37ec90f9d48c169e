#include "headrace/doctor/machine_probe.h"

#include <gtest/gtest.h>

#include <atomic>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::doctor {
namespace {

class MachineProbeTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, std::string_view text) {
    ASSERT_TRUE(files_.MakeDirectories(std::string(DirectoryName(path))).ok());
    ASSERT_TRUE(files_.WriteAtomically(path, AsBytes(text)).ok());
  }
  MemoryFileSystem files_;
};

TEST_F(MachineProbeTest, ReadsWhatTheKernelSays) {
  Put("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\n");
  Put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  Put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
  Put("/sys/fs/cgroup/memory.max", "max\n");
  Put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  Put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n");
  Put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000\n");
  Put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  Put("/sys/class/net/eth0/operstate", "up\n");
  Put("/sys/class/net/eth0/speed", "10000\n");
  Put("/sys/class/net/eth1/operstate", "down\n");
  Put("/sys/class/net/eth1/speed", "100000\n");
  Put("/sys/class/net/veth/operstate", "up\n");
  Put("/sys/class/net/veth/speed", "-1\n");
  Put("/proc/self/limits",
      "Limit        Soft Limit  Hard Limit  Units\nMax open files            1024        "
      "4096        files\n");
  Put("/proc/sys/vm/max_map_count", "65530\n");
  Put("/proc/sys/kernel/io_uring_disabled", "2\n");
  Put("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
  const MachineState state = ReadMachine(&files_);
  EXPECT_EQ(state.affinity_cpus, 7);
  EXPECT_EQ(state.quota_cpus, 2.5);
  EXPECT_EQ(state.facts.cpus, 2.5);
  EXPECT_EQ(state.facts.memory_bytes, uint64_t{16} << 20);
  EXPECT_EQ(state.facts.network_bytes_per_s, 1.25e9);
  EXPECT_EQ(state.facts.clock_source, "tsc");
  EXPECT_EQ(state.facts.mhz, 1800);
  EXPECT_EQ(state.facts.max_mhz, 3600);
  EXPECT_EQ(state.governor, "powersave");
  EXPECT_EQ(state.open_files, 1024u);
  EXPECT_EQ(state.map_count, 65530u);
  EXPECT_EQ(state.io_uring_disabled, 2u);
  EXPECT_EQ(state.receive_buffer_bytes, 6291456u);
}

TEST_F(MachineProbeTest, ProcessorsMayShareCores) {
  EXPECT_FALSE(ReadMachine(&files_).facts.shares_cores);
  Put("/sys/devices/system/cpu/smt/active", "0\n");
  Put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n");
  EXPECT_FALSE(ReadMachine(&files_).facts.shares_cores);
  Put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
  EXPECT_TRUE(ReadMachine(&files_).facts.shares_cores);
  Put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n");
  Put("/sys/devices/system/cpu/smt/active", "1\n");
  EXPECT_TRUE(ReadMachine(&files_).facts.shares_cores);
}

TEST_F(MachineProbeTest, OlderControlGroupsAreReadToo) {
  Put("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadMachine(&files_).facts.cpus, 1.5);
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(ReadMachine(&files_).facts.cpus, 8);
}

TEST_F(MachineProbeTest, WhatTheKernelDoesNotSayIsEmpty) {
  Put("/proc/self/status", "Cpus_allowed_list:\tnonsense\n");
  Put("/sys/fs/cgroup/cpu.max", "max 100000\n");
  const MachineState state = ReadMachine(&files_);
  EXPECT_EQ(state.facts.cpus, 0);
  EXPECT_EQ(state.quota_cpus, std::nullopt);
  EXPECT_EQ(state.facts.network_bytes_per_s, 0);
  EXPECT_EQ(state.open_files, std::nullopt);
}

TEST_F(MachineProbeTest, ThisMachineIsRead) {
  const MachineState state = ReadMachine(PosixFileSystem());
  EXPECT_GE(state.facts.cpus, 0.01);
  EXPECT_GT(state.facts.memory_bytes, 0u);
  EXPECT_GT(state.open_files.value_or(0), 0u);
}

TEST_F(MachineProbeTest, DiskIsMeasuredWithWhatIsThere) {
  Put("/data/a.tar", std::string(3 << 20, 'x'));
  Put("/data/tiny", "x");
  auto speed = MeasureDisk(&files_, {"/data/tiny", "/data/a.tar"}, 0.01, {});
  ASSERT_TRUE(speed.ok()) << speed.status().ToString();
  EXPECT_GT(speed->bytes_per_s, 0);
  EXPECT_GT(speed->small_read_s, 0);
  EXPECT_GT(speed->bytes, 0u);
  EXPECT_EQ(MeasureDisk(&files_, {"/data/tiny"}, 0.01, {}).status().code(), Code::kNotFound);
  EXPECT_EQ(MeasureDisk(&files_, {"/data/none"}, 0.01, {}).status().code(), Code::kNotFound);
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(MeasureDisk(&files_, {"/data/a.tar"}, 60, ctx).status().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace::doctor
