// Goroutines that open, read and close a file, with garbage collections and preemption in between: go_files FILE ROUNDS.
package main

// #include <unistd.h>
import "C"

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
)

func main() {
	rounds, _ := strconv.Atoi(os.Args[2])
	var all sync.WaitGroup
	for w := 0; w < 8; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < rounds; i++ {
				f, err := os.Open(os.Args[1])
				if err != nil {
					panic(err)
				}
				if _, err := io.ReadAll(f); err != nil {
					panic(err)
				}
				f.Close()
				if i%10 == 0 {
					runtime.GC()
				}
			}
		}()
	}
	all.Wait()
	if out, err := exec.Command("echo", "hi").Output(); err != nil || string(out) != "hi\n" || C.getpid() <= 0 {
		panic("child")
	}
}
