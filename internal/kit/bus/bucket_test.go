package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

type states = bus.Bucket[*seatrialv1.ReleaseState]

func openStates(t *testing.T, c *bus.Conn) *states {
	t.Helper()
	bucket, err := bus.OpenBucket[*seatrialv1.ReleaseState](t.Context(), c, subject.BucketReleases)
	require.NoError(t, err)
	return bucket
}

func state(r subject.Release, generation uint32) *seatrialv1.ReleaseState {
	return &seatrialv1.ReleaseState{Release: r.String(), Generation: generation}
}

func testPut(t *testing.T, p place) {
	c := kittest.Connect(t, p.url)
	bucket, r := openStates(t, c), newRelease()
	_, revision, err := bucket.Get(t.Context(), r.Key())
	require.ErrorIs(t, err, bus.ErrNotFound)
	require.Zero(t, revision)

	first, err := bucket.Put(t.Context(), r.Key(), state(r, 1), 0)
	require.NoError(t, err)
	_, err = bucket.Put(t.Context(), r.Key(), state(r, 2), 0)
	require.ErrorIs(t, err, bus.ErrConflict, "it exists")
	_, err = bucket.Put(t.Context(), r.Key(), state(r, 1), 0)
	require.ErrorIs(t, err, bus.ErrConflict, "the same value by somebody else is a conflict too")

	second, err := bucket.Put(t.Context(), r.Key(), state(r, 2), first)
	require.NoError(t, err)
	require.Greater(t, second, first)
	_, err = bucket.Put(t.Context(), r.Key(), state(r, 3), first)
	require.ErrorIs(t, err, bus.ErrConflict, "out of date")

	eventually(t, func() bool { // a replica may lag behind
		_, revision, err := bucket.Get(t.Context(), r.Key())
		require.NoError(t, err)
		return revision == second
	}, "the last revision is read")
	got, _, err := bucket.Get(t.Context(), r.Key())
	require.NoError(t, err)
	require.True(t, proto.Equal(state(r, 2), got))
}

func testWriters(t *testing.T, p place) {
	r := newRelease()
	var mu sync.Mutex
	var writers sync.WaitGroup
	won := map[uint64]int{}
	for range 8 {
		bucket := openStates(t, kittest.Connect(t, p.url))
		writers.Go(func() {
			// Each counts up, and the value is the same whoever writes it.
			for range 5 {
				for {
					got, revision, err := bucket.Get(t.Context(), r.Key())
					if err != nil && !errors.Is(err, bus.ErrNotFound) {
						continue
					}
					written, err := bucket.Put(t.Context(), r.Key(), state(r, got.GetGeneration()+1), revision)
					if err == nil {
						mu.Lock()
						won[written]++
						mu.Unlock()
						break
					}
				}
			}
		})
	}
	writers.Wait()
	require.Len(t, won, 40, "every success is a revision of its own")
	bucket := openStates(t, kittest.Connect(t, p.url))
	eventually(t, func() bool { // a replica may lag behind
		got, _, err := bucket.Get(t.Context(), r.Key())
		require.NoError(t, err)
		return got.GetGeneration() == 40
	}, "no update was lost")
}

// One server answers a repetition with a conflict, three say that they have it already.
func testLostConfirmation(t *testing.T, p place) {
	bucket, r := openStates(t, kittest.Connect(t, p.url)), newRelease()
	mine, err := bus.PutWithID(t.Context(), bucket, r.Key(), state(r, 1), 0, "id-1-"+r.Name)
	require.NoError(t, err)
	again, err := bus.PutWithID(t.Context(), bucket, r.Key(), state(r, 1), 0, "id-1-"+r.Name)
	require.NoError(t, err, "it is my own")
	require.Equal(t, mine, again)
	_, err = bus.PutWithID(t.Context(), bucket, r.Key(), state(r, 1), 0, "id-2-"+r.Name)
	require.ErrorIs(t, err, bus.ErrConflict, "the same value, but somebody else's")
}

func TestAKeyThatLostItsValueCanBeSetAgain(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	bucket := openStates(t, c)
	kv, err := c.JS.KeyValue(t.Context(), subject.BucketReleases)
	require.NoError(t, err)
	for name, remove := range map[string]func(key string) error{
		"deleted": func(key string) error { return kv.Delete(t.Context(), key) },
		"purged":  func(key string) error { return kv.Purge(t.Context(), key) },
	} {
		r := newRelease()
		_, err := bucket.Put(t.Context(), r.Key(), state(r, 1), 0)
		require.NoError(t, err, name)
		require.NoError(t, remove(r.Key()), name)
		_, revision, err := bucket.Get(t.Context(), r.Key())
		require.ErrorIs(t, err, bus.ErrNotFound, name)
		_, err = bucket.Put(t.Context(), r.Key(), state(r, 2), 0)
		require.ErrorIs(t, err, bus.ErrConflict, name)
		_, err = bucket.Put(t.Context(), r.Key(), state(r, 2), revision)
		require.NoError(t, err, name)
	}
}

func TestAnUnreadableValueIsAnErrorWithItsRevision(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	kv, err := c.JS.KeyValue(t.Context(), subject.BucketReleases)
	require.NoError(t, err)
	written, err := kv.Put(t.Context(), "a.b.c", []byte("\xff\xff"))
	require.NoError(t, err)
	_, revision, err := openStates(t, c).Get(t.Context(), "a.b.c")
	require.ErrorContains(t, err, "seatrial-releases/a.b.c: revision 1")
	require.Equal(t, written, revision)
}

func TestOpenBucketAsksForProvisioning(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.NATS(t).URL)
	_, err := bus.OpenBucket[*seatrialv1.ReleaseState](t.Context(), c, subject.BucketReleases)
	require.ErrorIs(t, err, bus.ErrNotFound)
	require.ErrorContains(t, err, "bucket seatrial-releases")
	require.ErrorContains(t, err, "seatrial-provision")
}

func TestWatchTellsAllKeysAndThenEachChange(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	bucket, r, other := openStates(t, c), newRelease(), newRelease()
	seen, seenOfOne := make(chan string, 100), make(chan string, 100)
	tell := func(to chan string) func(string, *seatrialv1.ReleaseState, uint64) {
		return func(key string, m *seatrialv1.ReleaseState, revision uint64) {
			if m == nil {
				to <- fmt.Sprintf("%s gone @%d", key, revision)
				return
			}
			to <- fmt.Sprintf("%s %d @%d", key, m.GetGeneration(), revision)
		}
	}
	put := func(r subject.Release, generation uint32) string {
		_, revision, _ := bucket.Get(t.Context(), r.Key())
		revision, err := bucket.Put(t.Context(), r.Key(), state(r, generation), revision)
		require.NoError(t, err)
		return fmt.Sprintf("%s %d @%d", r.Key(), generation, revision)
	}
	before := []string{put(r, 1), put(other, 1)}
	said := &lines{}
	watching, err := bus.Connect(t.Context(), bus.Config{URL: s.URL}, slog.New(slog.NewTextHandler(said, nil)))
	require.NoError(t, err)
	defer watching.NC.Close()
	start(t, func(ctx context.Context) error { return openStates(t, watching).Watch(ctx, tell(seen)) })
	start(t, func(ctx context.Context) error {
		return openStates(t, watching).WatchKey(ctx, r.Key(), tell(seenOfOne))
	})
	require.Equal(t, before[0], receive(t, seen, "a key"))
	require.Equal(t, before[1], receive(t, seen, "another key"))
	require.Equal(t, before[0], receive(t, seenOfOne, "the key"))

	_, err = c.JS.Publish(t.Context(), "$KV.seatrial-releases."+r.Key(), []byte("\xff\xff"))
	require.NoError(t, err, "an unreadable value is left out")
	after := put(other, 2)
	require.Equal(t, after, receive(t, seen, "a change"))

	s.Restart(t)
	// Left to itself, a watcher notices its end much later.
	eventually(t, func() bool { return said.has("the connection was made anew") }, "the watch starts again at once")
	after = put(r, 3)
	for receive(t, seen, "a change after the restart") != after { // some may come again before it
	}
	require.Equal(t, after, receive(t, seenOfOne, "a change after the restart"))

	kv, err := c.JS.KeyValue(t.Context(), subject.BucketReleases)
	require.NoError(t, err)
	require.NoError(t, kv.Delete(t.Context(), r.Key()))
	require.True(t, strings.HasPrefix(receive(t, seenOfOne, "the end of the value"), r.Key()+" gone @"))
}

func TestWatchEndsWithItsContextAndWithTheConnection(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	bucket := openStates(t, c)
	ignore := func(string, *seatrialv1.ReleaseState, uint64) {}
	stop := start(t, func(ctx context.Context) error { return bucket.Watch(ctx, ignore) })
	require.ErrorIs(t, stop(), context.Canceled)

	ended := make(chan error, 1)
	go func() { ended <- bucket.Watch(t.Context(), ignore) }()
	c.NC.Close()
	require.ErrorIs(t, receive(t, ended, "the end"), bus.ErrClosed)
}

func TestObjectsAreStoredAndFetched(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	big := []byte(strings.Repeat("0123456789", 300_000)) // several messages
	require.NoError(t, c.PutObject(t.Context(), subject.ObjectsCharts, "sha256:1", []byte("old")))
	require.NoError(t, c.PutObject(t.Context(), subject.ObjectsCharts, "sha256:1", big))
	got, err := c.GetObject(t.Context(), subject.ObjectsCharts, "sha256:1", int64(len(big)))
	require.NoError(t, err)
	require.Equal(t, big, got)

	_, err = c.GetObject(t.Context(), subject.ObjectsCharts, "sha256:1", int64(len(big)-1))
	require.ErrorIs(t, err, bus.ErrTooLarge)
	require.ErrorContains(t, err, "seatrial-charts/sha256:1: too large: 3000000 bytes, the limit is 2999999")
	_, err = c.GetObject(t.Context(), subject.ObjectsCharts, "sha256:2", 1)
	require.ErrorIs(t, err, bus.ErrNotFound)
	_, err = c.GetObject(t.Context(), "no-such-store", "x", 1)
	require.ErrorIs(t, err, bus.ErrNotFound)
	require.ErrorContains(t, err, "seatrial-provision")
}

func TestAnObjectThatWasTamperedWithIsNotReturned(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	require.NoError(t, c.PutObject(t.Context(), subject.ObjectsCharts, "sha256:1", []byte("good")))
	stream, err := c.JS.Stream(t.Context(), "OBJ_"+subject.ObjectsCharts)
	require.NoError(t, err)
	chunk, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), 1))
	_, err = c.JS.Publish(t.Context(), chunk.Subject, []byte("evil"))
	require.NoError(t, err)
	_, err = c.GetObject(t.Context(), subject.ObjectsCharts, "sha256:1", 100)
	require.ErrorIs(t, err, jetstream.ErrDigestMismatch)
}
