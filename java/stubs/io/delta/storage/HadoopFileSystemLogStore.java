package io.delta.storage;

import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** The part of Delta's class that the log store uses. See java/README.md. */
public abstract class HadoopFileSystemLogStore {
    public HadoopFileSystemLogStore(Configuration hadoopConf) {}

    public abstract void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException;

    public abstract Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) throws IOException;
}
