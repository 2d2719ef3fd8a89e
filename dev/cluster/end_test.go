package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/dev/cluster/internal/claim"
	"github.com/seatrial/seatrial/dev/cluster/internal/image"
	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// TestFailure takes a component from a running cluster.
func TestFailure(t *testing.T) {
	name := uniqueName("failure")
	p := start(t, nil, "run", "--name", name, "--", "sh", "-c", "trap 'echo told; exit 0' TERM; echo started; while sleep 0.1; do :; done")
	require.Equal(t, "started", p.line(t))
	record := recordOf(t, name)
	scheduler := 0
	for id := range descendants(t, p.Process.Pid) {
		command, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/cmdline")
		require.NoError(t, err)
		if strings.HasPrefix(string(command), node.Scheduler) {
			scheduler = id
		}
	}
	require.NotZero(t, scheduler)

	require.NoError(t, syscall.Kill(scheduler, syscall.SIGKILL))
	<-p.ended

	require.Equal(t, 1, p.ProcessState.ExitCode())
	require.Equal(t, "told", p.line(t), "the command ends with its cluster")
	log := filepath.Join(record.Temporary, "logs", node.Scheduler+".log")
	require.Contains(t, p.stderr.String(), "kube-scheduler ended: signal: killed\n--- the end of "+log)
	require.FileExists(t, log, "someone wants to read it")
	require.False(t, hasInterface(t, record.Interface))
	require.Empty(t, cgroups(t, record))
}

// TestKill kills the one process that a person sees, in the one way that it cannot notice.
func TestKill(t *testing.T) {
	name := uniqueName("kill")
	p := start(t, nil, "run", "--name", name, "--", "sh", "-c", "echo $KUBECONFIG; exec sleep 86400")
	_, client := clientOf(t, p.line(t))
	_, err := client.CoreV1().Pods("default").Create(t.Context(), podOf("sleeper", image.Busybox, "sleep", "86400"), metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPod(t, client, "sleeper", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	record := recordOf(t, name)
	family := descendants(t, p.Process.Pid)
	require.GreaterOrEqual(t, len(family), 13, "the command, the first process, six components, CoreDNS, containerd, a pod's three: %v", family)
	require.True(t, hasInterface(t, record.Interface))

	p.stop(t, syscall.SIGKILL)

	require.Eventually(t, func() bool { return len(alive(family)) == 0 }, deadline, beat, "processes outlive it")
	require.Eventually(t, func() bool { return !hasInterface(t, record.Interface) }, deadline, beat, "its interface does")
	requireNoMount(t, record)

	// What the kernel cannot know to remove, the next start removes: any, not only one of the same name.
	next := start(t, nil, "run", "--", "true")
	<-next.ended
	require.Zero(t, next.ProcessState.ExitCode(), next.stderr)
	requireNothingLeft(t, name, record)
}

// requireNothingLeft looks at everything that a cluster holds outside its namespaces.
func requireNothingLeft(t *testing.T, name string, record claim.Record) {
	t.Helper()
	require.False(t, hasInterface(t, record.Interface))
	requireNoMount(t, record)
	require.Empty(t, cgroups(t, record))
	require.NoFileExists(t, recordPath(name))
	if record.Temporary != "" {
		require.NoDirExists(t, record.Temporary)
	}
}

func requireNoMount(t *testing.T, record claim.Record) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), record.Cgroup)
	require.NotContains(t, string(mounts), "/run/seatrial/")
	if record.Temporary != "" {
		require.NotContains(t, string(mounts), record.Temporary)
	}
}

func hasInterface(t *testing.T, name string) bool {
	t.Helper()
	links, err := netlink.LinkList()
	require.NoError(t, err)
	for _, link := range links {
		if link.Attrs().Name == name {
			return true
		}
	}
	return false
}

func cgroups(t *testing.T, record claim.Record) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} { // version 2, version 1
		found, err := filepath.Glob(pattern + record.Cgroup)
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// descendants finds all processes below one, with the times of their starts, since a number can be used again.
func descendants(t *testing.T, pid int) map[int]string {
	t.Helper()
	all := map[int]string{}
	paths, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	parents := map[int]int{}
	for _, path := range paths {
		id, err := strconv.Atoi(filepath.Base(path))
		require.NoError(t, err)
		if parent, _, ok := stat(id); ok {
			parents[id] = parent
		}
	}
	for id := range parents {
		for above := parents[id]; above != 0; above = parents[above] {
			if above == pid {
				if _, started, ok := stat(id); ok {
					all[id] = started
				}
				break
			}
		}
	}
	return all
}

func alive(processes map[int]string) []int {
	var all []int
	for id, started := range processes {
		if _, now, ok := stat(id); ok && now == started {
			all = append(all, id)
		}
	}
	return all
}

// stat reads a process's parent and the time of its start.
func stat(pid int) (parent int, started string, ok bool) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, "", false
	}
	// The name of the program comes second, in brackets, and may hold anything.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err == nil
}
